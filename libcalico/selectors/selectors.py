"""Calico's selector language: parse once, match many label sets.

libcalico/selectors/parser.py reads the text, libcalico/selectors/nodes.py gives its parts their
meaning, and libcalico/selectors/compiler.py compiles `Selector.matches`.

Invariants (tests/libcalico/test_selectors.py, test_selector_grammar.py):
  SEL-2  `text` is Calico's canonical text and `uid` its identifier: names of IP sets agree.
  SEL-3  `text` reads as the same selector again. (Only `!(!x)`, whose text is `!!x` as in
         Calico, reads as the shorter `x`, which matches the same.)
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache

from libcalico.selectors.compiler import compiled
from libcalico.selectors.nodes import (
    NAMESPACE_LABEL,
    And,
    Compare,
    Constant,
    Has,
    InSet,
    Labels,
    Node,
    Not,
    Or,
)
from libcalico.selectors.parser import tree

__all__ = [
    "NAMESPACE_LABEL",
    "And",
    "Compare",
    "Constant",
    "Has",
    "InSet",
    "Node",
    "Not",
    "Or",
    "Selector",
    "parse",
]

_SIMPLE = re.compile(
    r"([A-Za-z0-9_./-]{1,512}) == '([^']*)'|has\(([A-Za-z0-9_./-]{1,512})\)"
).fullmatch


class Selector:
    """A parsed selector. Two selectors of one meaning and form have one `text` and `uid`.

    `matches` is a function of a label mapping. It, `text` and `uid` are made at their first use,
    so a check of a selector's syntax pays for none of them.
    """

    __slots__ = ("matches", "root", "text", "uid")

    root: Node
    matches: Callable[[Labels], bool]
    text: str
    uid: str

    def __init__(self, root: Node) -> None:
        self.root = root

    def __getattr__(self, name: str) -> object:
        # Python calls this only while the slot is empty.
        value: object
        if name == "matches":
            value = compiled(self.root)
        elif name == "text":
            value = self.root.text
        elif name == "uid":
            digest = hashlib.sha224(f"s:{self.text}".encode()).digest()
            value = "s:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __repr__(self) -> str:
        return f"Selector({self.text})"

    def __reduce__(self) -> tuple[type[Selector], tuple[Node]]:
        return Selector, (self.root,)


@lru_cache(maxsize=4096)
def parse(text: str) -> Selector:
    """The selector of a text; the empty text selects all. Raises InvalidValue."""
    simple = _SIMPLE(text)
    if simple is None:
        return Selector(tree(text))
    # Most rules test one label for its value or its presence: that needs no parser.
    label, value, name = simple.groups()
    return Selector(Has(name) if name is not None else Compare(label, "==", value))
