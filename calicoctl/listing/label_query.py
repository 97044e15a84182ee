"""`--selector`: which resources by their labels, in kubectl's words or in Calico's.

kubectl's are tried first: `app=web,tier!=db`, `app in (web,api)`, `app notin (web)`, `app`,
`!app`, joined by commas. What is none of these is read as a selector of Calico:
`app == 'web' && !has(canary)`. Where both can be read they mean the same. Pure.
Source: Kubernetes' documentation, "Labels and Selectors"; docs/reference/data-model.md#selectors.
Tested in `tests/calicoctl/test_get_options.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from libcalico.errors import InvalidValue, MuslinError
from libcalico.selectors import selectors
from libcalico.selectors.nodes import And, Compare, Has, InSet, Node, Not

_KEY = r"(?P<key>[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?)"
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?|"
_EQUAL = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>{_VALUE})").fullmatch
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)").fullmatch
_HAS = re.compile(rf"(?P<not>!?)\s*{_KEY}").fullmatch
_COMMA = re.compile(r",(?![^()]*\))")
_PLAIN = re.compile(_VALUE).fullmatch

RULE = (
    "must be labels as kubectl selects them (app=web,tier!=db, app in (web,api), app, !app) or a"
    " selector of Calico (app == 'web' && !has(canary))"
)


def matcher(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels are selected. Raises InvalidValue for what is neither language."""
    if not text.strip():
        raise InvalidValue("--selector", text, RULE)
    terms = [_term(part.strip()) for part in _COMMA.split(text)]
    known = [term for term in terms if term is not None]
    if len(known) == len(terms):
        root = known[0] if len(known) == 1 else And(tuple(known))
        return selectors.Selector(root).matches
    try:
        return selectors.parse(text).matches
    except MuslinError as error:
        raise InvalidValue("--selector", text, f"{RULE}: {error}") from None


def _term(text: str) -> Node | None:
    """One requirement of kubectl's; None for what is none."""
    if match := _EQUAL(text):
        operator = "!=" if match["operator"] == "!=" else "=="
        return Compare(match["key"], operator, match["value"])
    if match := _SET(text):
        values = [one.strip() for one in match["values"].split(",")]
        if not all(_PLAIN(one) for one in values):
            return None
        return InSet(match["key"], frozenset(values), match["operator"] == "notin")
    if match := _HAS(text):
        has = Has(match["key"])
        return Not(has) if match["not"] else has
    return None
