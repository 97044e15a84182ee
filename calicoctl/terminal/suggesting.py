"""What was probably meant by a word that is unknown: of commands, kinds, fields and names.

Imported where an error is told, never on the way to an answer. Pure.
Tested in `tests/calicoctl/test_suggesting.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libcalico.model.base.shape import fields_beside

MOST = 3
ALIKE = 0.7
"""The share of a word's letters that must agree, as `difflib` counts it."""

LEAST = 3
"""Letters that a name of a kind has at least, to be guessed."""

OTHER_TOOLS = {
    "describe": "get KIND NAME -o yaml",
    "diff": "policy plan",
    "edit": "patch",
    "list": "get",
    "ls": "get",
    "remove": "delete",
    "rm": "delete",
    "show": "get",
    "update": "replace",
    "watch": "get KIND -w",
}
"""What other tools call the same thing: closer than any spelling."""


def near(word: str, known: Iterable[str]) -> list[str]:
    """The known words that `word` may stand for, the likeliest first; letter case is ignored."""
    from difflib import get_close_matches

    spelled: dict[str, str] = {}
    for one in known:
        spelled.setdefault(one.lower(), one)
    if word.lower() in spelled:
        return [spelled[word.lower()]]
    return [spelled[one] for one in get_close_matches(word.lower(), spelled, MOST, ALIKE)]


def question(words: Iterable[str]) -> str:
    """`Did you mean 'get'?`; empty where there is nothing to ask."""
    quoted = [f"'{word}'" for word in words]
    if not quoted:
        return ""
    return f"Did you mean {' or '.join(quoted)}?"


def of_kind(word: str, words: Iterable[str]) -> list[str]:
    """The words for kinds that `word` may stand for; short ones are near to everything."""
    return near(word, (one for one in words if len(one) > LEAST))


def of_command(word: str, known: Iterable[str]) -> str:
    """The question that follows an unknown command; empty where none is near."""
    names = list(known)
    other = OTHER_TOOLS.get(word.lower(), "")
    if other and other.split()[0] in names:
        return question([other])
    return question(near(word, names))


def of_field(type_: type[msgspec.Struct], path: str) -> str:
    """What follows the name of an unknown field: ` (did you mean 'cidr'?)`, or nothing.

    A field that stands one level too high is looked for in the spec as well.
    """
    name = path.rpartition(".")[2]
    beside = near(name, fields_beside(type_, path))
    if not beside and name in fields_beside(type_, f"spec.{name}"):
        beside = [f"spec.{name}"]
    text = question(beside)
    return f" ({text[0].lower()}{text[1:]})" if text else ""
