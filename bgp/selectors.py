"""A small part of Calico's selector language, enough for peers chosen by simple labels.

Understood: `all()`, nothing (means all), `has(k)`, `!has(k)`, `k == 'v'`, `k != 'v'`,
`k in {...}` with one or several values, and these joined by `&&`. Anything else raises
`Unsupported`: the peering is refused aloud rather than guessed (never wider than asked).
Tested in tests/bgp/test_selectors.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from libcalico.errors import MuslinError

_LABEL = r"[A-Za-z0-9_./-]+"
_VALUE = r"'[^']*'|\"[^\"]*\""
_HAS = re.compile(rf"(?P<not>!?)has\(\s*(?P<label>{_LABEL})\s*\)")
_EQUALS = re.compile(rf"(?P<label>{_LABEL})\s*(?P<op>==|!=)\s*(?P<value>{_VALUE})")
_IN = re.compile(
    rf"(?P<label>{_LABEL})\s+(?P<not>not\s*)?in\s*\{{(?P<values>(\s*({_VALUE})\s*,?)*\s*)\}}"
)


class Unsupported(MuslinError):
    """A selector that this release cannot evaluate here."""

    def __init__(self, selector: str) -> None:
        super().__init__(
            f"selector {selector!r} is not understood here: allowed are all(), has(k), "
            "k == 'v', k != 'v', k in {'v', ...} and these joined by &&"
        )


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy `selector`. Raises `Unsupported`."""
    terms = [_term(term.strip(), labels, selector) for term in selector.split("&&")]
    return all(terms)


def _term(term: str, labels: Mapping[str, str], selector: str) -> bool:
    if term == "all()" or (not term and not selector.strip()):
        return True
    if found := _HAS.fullmatch(term):
        return (found["label"] in labels) != bool(found["not"])
    if found := _EQUALS.fullmatch(term):
        return (labels.get(found["label"]) == found["value"][1:-1]) == (found["op"] == "==")
    if found := _IN.fullmatch(term):
        values = {value[1:-1] for value in re.findall(_VALUE, found["values"])}
        return (labels.get(found["label"]) in values) != bool(found["not"])
    raise Unsupported(selector)
