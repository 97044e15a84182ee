"""Whether a pool selects a node: the part of Calico's selector language that pools use most.

Conjunctions of `all()`, `has(x)`, `!has(x)`, `x == "v"`, `x != "v"`, `x in {..}` and
`x not in {..}` are understood; anything else is refused by name rather than guessed, since
a wrong guess hands out addresses from a pool that was not meant for the node.

Source: data model 2.19. Tested in tests/ipam/test_pools.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from libcalico.errors import InvalidValue

_NAME = r"[A-Za-z0-9_./-]+"
_TEXT = r"\"[^\"]*\"|'[^']*'"
_HAS = re.compile(rf"(!?)\s*has\(\s*({_NAME})\s*\)")
_EQUAL = re.compile(rf"({_NAME})\s*(==|!=)\s*({_TEXT})")
_SET = re.compile(rf"({_NAME})\s+(not\s+in|in)\s*\{{\s*((?:{_TEXT})(?:\s*,\s*(?:{_TEXT}))*)?\s*\}}")
_VALUE = re.compile(_TEXT)
_SPLIT = re.compile(r"&&(?=(?:[^\"']|\"[^\"]*\"|'[^']*')*$)")


def matches(selector: str, labels: Mapping[str, str], subject: str) -> bool:
    """Whether `labels` satisfy `selector`; an empty selector matches everything.

    `subject` names the pool in the error. Raises `InvalidValue` for what is not understood.
    """
    text = selector.strip()
    if not text:
        return True
    terms = [_term(part.strip(), labels, selector, subject) for part in _SPLIT.split(text)]
    return all(terms)


def _term(text: str, labels: Mapping[str, str], selector: str, subject: str) -> bool:
    if re.fullmatch(r"all\(\s*\)", text):
        return True
    if found := _HAS.fullmatch(text):
        return (found[2] in labels) != bool(found[1])
    if found := _EQUAL.fullmatch(text):
        return (labels.get(found[1]) == found[3][1:-1]) == (found[2] == "==")
    if found := _SET.fullmatch(text):
        values = {value[1:-1] for value in _VALUE.findall(found[3] or "")}
        return (labels.get(found[1]) in values) == (found[2] == "in")
    raise InvalidValue(
        "spec.nodeSelector",
        selector,
        "this release understands all(), has(x), ==, !=, in and not in, joined by &&",
        subject,
    )
