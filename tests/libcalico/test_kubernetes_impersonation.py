"""The headers of impersonation, and what of a kubeconfig gives none."""

from __future__ import annotations

from typing import Any

import pytest

from libcalico.kubernetes.impersonation import headers


def test_every_part_has_its_header() -> None:
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.org/project": ["one", "two"]},
    }
    assert headers(user) == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.org%2Fproject", "one"),
        ("Impersonate-Extra-example.org%2Fproject", "two"),
    )
    assert headers({"token": "t"}) == ()


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"as-groups": ["dev"]}, "must name a user where as-groups is set"),
        ({"as": "a", "as-groups": "dev"}, "as-groups must be a list"),
        ({"as": "a", "as-user-extra": {"k": "v"}}, r"as-user-extra\.k must be a list"),
        ({"as": "a", "as-user-extra": ["v"]}, "must be a map of lists"),
        ({"as": "a\r\nHost: b"}, "Impersonate-User must be printable ASCII"),
        ({"as": 5}, "Impersonate-User must be printable ASCII"),
    ],
)
def test_what_cannot_be_a_header_is_named(user: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        headers(user)
