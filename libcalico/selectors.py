"""Calico's selector language: parse once, match many label sets.

Data model 2.19: `k == 'v'`, `!=`, `in {...}`, `not in`, `contains`, `starts with`,
`ends with`, `has(k)`, `all()`, `global()`, `!`, `&&`, `||`, parentheses. An absent label
fails every positive comparison and passes `!=` and `not in`. The nodes are kept as a tree
(not only as functions), because an index over labels reads them.

Tested in tests/libcalico/test_selectors.py.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from libcalico.errors import InvalidValue

MAX_LABEL = 512
MAX_NESTING = 128
"""Parentheses in parentheses: more than this is refused, before Python's stack is."""
NAMESPACE_LABEL = "projectcalico.org/namespace"
Labels = Mapping[str, str]


def _quoted(value: str) -> str:
    return f"'{value}'" if '"' in value else f'"{value}"'


@dataclass(frozen=True, slots=True)
class Compare:
    """`label <operator> value`; the operators are those of `_OPERATORS`."""

    label: str
    operator: str
    value: str

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        found = labels.get(self.label)
        match self.operator:
            case "==":
                return found == self.value
            case "!=":
                return found != self.value
            case _ if found is None:
                return False
            case "contains":
                return self.value in found
            case "starts with":
                return found.startswith(self.value)
            case _:
                return found.endswith(self.value)

    @property
    def text(self) -> str:
        """Canonical text."""
        return f"{self.label} {self.operator} {_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class InSet:
    """`label in {...}` or, negated, `label not in {...}`."""

    label: str
    values: frozenset[str]
    negated: bool = False

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return (labels.get(self.label) in self.values) is not self.negated

    @property
    def text(self) -> str:
        """Canonical text: values sorted."""
        values = ", ".join(_quoted(value) for value in sorted(self.values))
        return f"{self.label} {'not in' if self.negated else 'in'} {{{values}}}"


@dataclass(frozen=True, slots=True)
class Has:
    """`has(label)`."""

    label: str

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return self.label in labels

    @property
    def text(self) -> str:
        """Canonical text."""
        return f"has({self.label})"


@dataclass(frozen=True, slots=True)
class Constant:
    """`all()`, or `global()`: what lies in no namespace."""

    text: str

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return self.text == "all()" or NAMESPACE_LABEL not in labels


@dataclass(frozen=True, slots=True)
class Not:
    """`!operand`."""

    operand: Node

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return not self.operand.matches(labels)

    @property
    def text(self) -> str:
        """Canonical text."""
        return f"!{self.operand.text}"


@dataclass(frozen=True, slots=True)
class And:
    """All operands."""

    operands: tuple[Node, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return all(one.matches(labels) for one in self.operands)

    @property
    def text(self) -> str:
        """Canonical text."""
        return "(" + " && ".join(one.text for one in self.operands) + ")"


@dataclass(frozen=True, slots=True)
class Or:
    """At least one operand."""

    operands: tuple[Node, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        return any(one.matches(labels) for one in self.operands)

    @property
    def text(self) -> str:
        """Canonical text."""
        return "(" + " || ".join(one.text for one in self.operands) + ")"


Node = Compare | InSet | Has | Constant | Not | And | Or


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector. Two selectors of one meaning and form have one `text` and `uid`."""

    root: Node

    def matches(self, labels: Labels) -> bool:
        """Whether a label set is selected."""
        return self.root.matches(labels)

    @property
    def text(self) -> str:
        """The canonical text."""
        return self.root.text

    @property
    def uid(self) -> str:
        """Calico's identifier, from which names of IP sets are made."""
        digest = hashlib.sha224(f"s:{self.text}".encode()).digest()
        return "s:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@lru_cache(maxsize=4096)
def parse(text: str) -> Selector:
    """The selector of a text; the empty text selects all. Raises InvalidValue."""
    return Selector(_Parser(text).whole())


_LABEL = re.compile(r"[A-Za-z0-9_./-]+")
_STRING = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_OPERATORS = (
    (re.compile(r"=="), "=="),
    (re.compile(r"!="), "!="),
    (re.compile(r"not[ \t]+in(?![A-Za-z0-9_./-])|notin(?![A-Za-z0-9_./-])"), "not in"),
    (re.compile(r"in(?![A-Za-z0-9_./-])"), "in"),
    (re.compile(r"contains(?![A-Za-z0-9_./-])"), "contains"),
    (re.compile(r"starts[ \t]*with(?![A-Za-z0-9_./-])"), "starts with"),
    (re.compile(r"ends[ \t]*with(?![A-Za-z0-9_./-])"), "ends with"),
)
_FUNCTIONS = re.compile(r"(has|all|global)\([ \t]*")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def whole(self) -> Node:
        if not self._text.strip(" \t"):
            return Constant("all()")
        node = self._or()
        self._space()
        if self._at < len(self._text):
            raise self._error("unexpected text")
        return node

    def _or(self) -> Node:
        operands = [self._and()]
        while self._taken("||"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _and(self) -> Node:
        operands = [self._unary()]
        while self._taken("&&"):
            operands.append(self._unary())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _unary(self) -> Node:
        negated = False
        while self._taken("!"):
            negated = not negated
        node = self._primary()
        return Not(node) if negated else node

    def _primary(self) -> Node:
        if self._taken("("):
            self._depth += 1
            if self._depth > MAX_NESTING:
                raise self._error(f"more than {MAX_NESTING} nested parentheses")
            node = self._or()
            self._depth -= 1
            self._expect(")")
            return node
        function = _FUNCTIONS.match(self._text, self._at)
        if function:
            self._at = function.end()
            if function[1] == "has":
                label = self._label()
                self._expect(")")
                return Has(label)
            self._expect(")")
            return Constant(f"{function[1]}()")
        return self._comparison(self._label())

    def _comparison(self, label: str) -> Node:
        self._space()
        for pattern, name in _OPERATORS:
            match = pattern.match(self._text, self._at)
            if match:
                self._at = match.end()
                if name in ("in", "not in"):
                    return InSet(label, self._set(), name == "not in")
                return Compare(label, name, self._string())
        raise self._error("expected an operator behind the label")

    def _set(self) -> frozenset[str]:
        self._expect("{")
        values: list[str] = []
        while not self._taken("}"):
            if values:
                self._expect(",")
                if self._taken("}"):
                    break
            values.append(self._string())
        return frozenset(values)

    def _label(self) -> str:
        self._space()
        match = _LABEL.match(self._text, self._at)
        if match is None or len(match[0]) > MAX_LABEL:
            raise self._error("expected a label")
        self._at = match.end()
        return match[0]

    def _string(self) -> str:
        self._space()
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("expected a value in quotes")
        self._at = match.end()
        return match[1] if match[1] is not None else match[2]

    def _space(self) -> None:
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1

    def _taken(self, word: str) -> bool:
        self._space()
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._taken(word):
            raise self._error(f"expected {word!r}")

    def _error(self, rule: str) -> InvalidValue:
        return InvalidValue("selector", self._text, f"{rule} at character {self._at + 1}")
