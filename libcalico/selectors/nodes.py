"""The tree of a selector: what each part matches, and its text in Calico's spelling.

The nodes are kept as a tree (not only as a function), because an index over labels reads
them (`felix/calc/sets/anchors.py`). An absent label fails every positive comparison and
passes `!=` and `not in` (docs/reference/data-model.md#selectors). Tested in
tests/libcalico/test_selectors.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

NAMESPACE_LABEL = "projectcalico.org/namespace"
Labels = Mapping[str, str]


_TEXT = attrgetter("text")
"""Without a generator: a deep tree may take one stack frame a level, not two."""


def _quoted(value: str) -> str:
    return f"'{value}'" if '"' in value else f'"{value}"'


@dataclass(frozen=True, slots=True)
class Compare:
    """`label <operator> value`; the operators are those of the parser."""

    label: str
    operator: str
    value: str

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        actual = labels.get(self.label)
        match self.operator:
            case "==":
                return actual == self.value
            case "!=":
                return actual != self.value
            case _ if actual is None:
                return False
            case "contains":
                return self.value in actual
            case "starts with":
                return actual.startswith(self.value)
            case _:
                return actual.endswith(self.value)

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
    """`all()`, or `global()`: objects without a namespace."""

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
        for operand in self.operands:  # noqa: SIM110
            if not operand.matches(labels):
                return False
        return True

    @property
    def text(self) -> str:
        """Canonical text."""
        return "(" + " && ".join(map(_TEXT, self.operands)) + ")"


@dataclass(frozen=True, slots=True)
class Or:
    """At least one operand."""

    operands: tuple[Node, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy this."""
        for operand in self.operands:  # noqa: SIM110
            if operand.matches(labels):
                return True
        return False

    @property
    def text(self) -> str:
        """Canonical text."""
        return "(" + " || ".join(map(_TEXT, self.operands)) + ")"


Node = Compare | InSet | Has | Constant | Not | And | Or


def depth(node: Node) -> int:
    """How many nodes lie on the longest way from the root to a leaf."""
    longest, level = 0, [node]
    while level:
        longest += 1
        level = [child for parent in level for child in _children(parent)]
    return longest


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (And, Or)):
        return node.operands
    return (node.operand,) if isinstance(node, Not) else ()
