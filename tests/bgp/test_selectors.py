"""The small selector language of peers, and its refusals."""

from __future__ import annotations

import pytest

from bgp.selectors import Unsupported, matches

LABELS = {"rack": "a", "role/x": "edge"}


@pytest.mark.parametrize(
    ("selector", "result"),
    [
        ("", True),
        ("all()", True),
        ("has(rack)", True),
        ("!has(rack)", False),
        ("has( zone )", False),
        ("rack == 'a'", True),
        ('rack=="b"', False),
        ("rack != 'b'", True),
        ("zone != 'b'", True),
        ("zone == 'b'", False),
        ("rack in {'a', 'b'}", True),
        ("rack in {}", False),
        ("rack not in {'a'}", False),
        ("zone notin {'a'}", True),
        ("rack == 'a' && has(role/x)", True),
        ("rack == 'a' && role/x != 'edge'", False),
    ],
)
def test_matches(selector: str, result: bool) -> None:
    assert matches(selector, LABELS) is result


@pytest.mark.parametrize(
    "selector",
    ["a || b", "(has(rack))", "rack = 'a'", "rack", "&&", "has(zone) && x(y)", "global()"],
)
def test_refused(selector: str) -> None:
    """Also when an earlier term is already false: a guess is never made."""
    with pytest.raises(Unsupported, match="not understood"):
        matches(selector, LABELS)
