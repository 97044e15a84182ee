"""The terms of a selector that keep it from matching.

Of alternatives (`||`) the one that lacks least is told: what an author has to change.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from libcalico.selectors.selectors import And, Compare, Constant, Has, InSet, Node, Not, Or

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Term:
    """A term that is not as the selector needs it: `holding` false where it must not hold."""

    node: Compare | InSet | Has | Constant
    holding: bool = True

    @property
    def label(self) -> str:
        """The label that it speaks of; empty for `all()` and `global()`."""
        return "" if isinstance(self.node, Constant) else self.node.label

    @property
    def text(self) -> str:
        """As the selector says it."""
        return self.node.text if self.holding else f"!{self.node.text}"

    def about(self, label: str) -> Term:
        """The same, of another label."""
        if isinstance(self.node, Constant):
            return self
        return replace(self, node=replace(self.node, label=label))

    def holds(self, labels: Labels) -> bool:
        """Whether labels are as the selector needs them."""
        return self.node.matches(labels) is self.holding


def lacking(node: Node, labels: Labels, *, holding: bool = True) -> tuple[Term, ...]:
    """The fewest terms that fail; none exactly if the selector matches (or, unwanted, does not)."""
    if node.matches(labels) is holding:
        return ()
    match node:
        case Not(operand):
            return lacking(operand, labels, holding=not holding)
        case And(operands) | Or(operands):
            parts = [lacking(each, labels, holding=holding) for each in operands]
            if isinstance(node, And) is holding:
                return tuple(term for part in parts for term in part)
            return min(parts, key=len)
    return (Term(node, holding),)
