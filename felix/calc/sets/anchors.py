"""What of a selector an index can look up: which labels it needs, which it mentions.

A selector such as `app == 'db' && tier != 'x'` can only match where `app` is `db`. That pair
is its anchor: an item without the pair need not be evaluated. A selector without an anchor
(`app != 'x'`) must be evaluated against every item.

Tested in tests/felix/calc/policy/test_index.py.
"""

from __future__ import annotations

from collections.abc import Callable

from libcalico.selectors.selectors import (
    NAMESPACE_LABEL,
    And,
    Compare,
    Constant,
    Has,
    InSet,
    Node,
    Not,
    Or,
)

Anchor = tuple[str, str | None]
"""A label with its value, or with None: any value."""


def anchors(node: Node, cost: Callable[[Anchor], int]) -> tuple[Anchor, ...] | None:
    """Pairs of which every matching label set has one; None if there are no such pairs.

    `cost` estimates how many label sets have an anchor; the cheapest of several choices counts.
    """
    match node:
        case Compare(_, "!=", _) | InSet(_, _, True) | Constant() | Not():
            return None
        case Compare(label, "==", value):
            return ((label, value),)
        case Compare(label) | Has(label):
            return ((label, None),)
        case InSet(label, values):
            return tuple((label, value) for value in sorted(values))
        case And(operands):
            choices = [a for one in operands if (a := anchors(one, cost)) is not None]
            return min(choices, key=lambda choice: sum(map(cost, choice)), default=None)
        case Or(operands):
            parts = [anchors(one, cost) for one in operands]
            if any(part is None for part in parts):
                return None
            return tuple(dict.fromkeys(anchor for part in parts for anchor in part or ()))


def mentioned(node: Node) -> frozenset[str]:
    """The labels on which the answer of a selector depends."""
    match node:
        case Compare(label) | InSet(label) | Has(label):
            return frozenset({label})
        case Constant(text):
            return frozenset() if text == "all()" else frozenset({NAMESPACE_LABEL})
        case Not(operand):
            return mentioned(operand)
        case And(operands) | Or(operands):
            return frozenset().union(*map(mentioned, operands))
