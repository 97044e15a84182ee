"""A selector as one Python function, several times faster than a walk over its tree.

The function is one expression over the label mapping, without calls into the nodes:
`a == 'x' && !has(b)` becomes `labels.get('a') == 'x' and not ('b' in labels)`. Label names
and values enter the text by `repr` only, so nothing in a selector can become code.

Invariant SEL-1: the function and the tree answer alike for every label mapping
(tests/libcalico/test_selector_compiled.py).
"""

from __future__ import annotations

from collections.abc import Callable

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
    depth,
)

MAX_DEPTH = 40
"""Python's own parser gives up on deeply nested text; deeper trees are walked instead."""

_METHODS = {"starts with": "startswith", "ends with": "endswith"}


def compiled(node: Node) -> Callable[[Labels], bool]:
    """The function that says whether a label mapping satisfies a node."""
    if depth(node) > MAX_DEPTH:
        return node.matches
    function: Callable[[Labels], bool] = eval(f"lambda labels: {source(node)}", {})
    return function


def source(node: Node) -> str:
    """The Python expression of a node; free of names but `labels`."""
    match node:
        case Compare(label, "==" | "!=" as operator, value):
            return f"labels.get({label!r}) {operator} {value!r}"
        case Compare(label, _, ""):
            # Every text holds, begins and ends with the empty one, if there is a text at all.
            return f"{label!r} in labels"
        case Compare(label, "contains", value):
            return f"{value!r} in labels.get({label!r}, '')"
        case Compare(label, operator, value):
            return f"labels.get({label!r}, '').{_METHODS[operator]}({value!r})"
        case InSet(_, values, negated) if not values:
            return str(negated)
        case InSet(label, values, negated):
            quoted = ", ".join(repr(value) for value in sorted(values))
            return f"labels.get({label!r}) {'not in' if negated else 'in'} {{{quoted}}}"
        case Has(label):
            return f"{label!r} in labels"
        case Constant(text):
            return "True" if text == "all()" else f"{NAMESPACE_LABEL!r} not in labels"
        case Not(operand):
            return f"not ({source(operand)})"
        case And(operands):
            return " and ".join(f"({source(one)})" for one in operands)
        case Or(operands):
            return " or ".join(f"({source(one)})" for one in operands)
