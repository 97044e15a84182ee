"""Whom a new selector matches: sets of label sets, cut, joined and subtracted.

Evaluating a selector on every candidate costs microseconds each; cutting two sets of ids costs
nanoseconds. So a tree of conditions becomes set operations on the postings, from the smallest
conjunct on, and only a small remainder is asked one by one. A search of a large population
yields now and then what it has done since, in about microseconds, so that others get their turn;
who changes labels meanwhile must look after what it may have found (felix.calc.sets.set_table).
Tested in tests/felix/calc/policy/test_population.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from felix.calc.sets.anchors import Anchor, anchors
from felix.calc.sets.label_sets import LabelSets
from felix.calc.work_counters import WorkCounters
from libcalico.selectors.nodes import depth
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
    Selector,
)

Found = Generator[int, None, set[int]]
FEW = 500
"""At most this many candidates are evaluated one by one."""
PORTION = 2000
DEEPEST = 50
"""A deeper tree is not walked: all label sets with its anchor are evaluated."""


class Search:
    """Over the label sets of one population."""

    def __init__(self, known: LabelSets, operations: WorkCounters) -> None:
        self._known = known
        self._operations = operations

    def find(self, selector: Selector) -> Found:
        """The label sets that a selector matches."""
        root = selector.root
        if depth(root) <= DEEPEST:
            return (yield from self._find(root))
        anchored = anchors(root, self._known.cost)
        candidates = yield from (self._all() if anchored is None else self._having(anchored))
        return (yield from self._asked(candidates, root))

    def _find(self, node: Node) -> Found:
        match node:
            case Has(label):
                return (yield from self._having([(label, None)]))
            case InSet(label, values, negated):
                if negated:
                    return (yield from self._others(InSet(label, values)))
                return (yield from self._having([(label, value) for value in values]))
            case Compare(label, "!=", value):
                return (yield from self._others(Compare(label, "==", value)))
            case Compare(label, operator, value):
                matching = [value]
                if operator != "==":
                    there = dict.fromkeys(self._known.values(label))
                    matching = [value for value in there if node.matches({label: value})]
                    yield len(there)
                return (yield from self._having([(label, value) for value in matching]))
            case Constant("all()"):
                return (yield from self._all())
            case Constant():
                return (yield from self._others(Has(NAMESPACE_LABEL)))
            case Not(operand):
                return (yield from self._others(operand))
            case Or(operands):
                label_sets: set[int] = set()
                for operand in operands:
                    label_sets |= yield from self._find(operand)
                    yield len(label_sets) // 100
                return label_sets
            case And(operands):
                return (yield from self._and(operands))

    def _and(self, operands: tuple[Node, ...]) -> Found:
        cost = self._known.cost
        rest = list(_conjuncts(operands))
        costs: list[tuple[int, int]] = []
        for number, operand in enumerate(rest):
            anchored = anchors(operand, cost)
            if anchored is not None:
                costs.append((sum(map(cost, anchored)), number))
        if costs:
            matching = yield from self._find(rest.pop(min(costs)[1]))
        else:
            matching = yield from self._all()
        # The negative ones last: what they leave out may be most of the population.
        rest.sort(key=_is_negative)
        while rest:
            if len(matching) <= FEW:
                return (yield from self._asked(matching, And(tuple(rest))))
            operand = rest.pop(0)
            self._operations.evaluations += len(matching)
            match operand:
                case Not(inner):
                    matching = matching - (yield from self._find(inner))
                case Compare(label, "!=", value):
                    matching = matching - (yield from self._find(Compare(label, "==", value)))
                case InSet(label, values, True):
                    matching = matching - (yield from self._find(InSet(label, values)))
                case _:
                    matching = matching & (yield from self._find(operand))
            yield len(matching) // 20
        return matching

    def _asked(self, candidates: Iterable[int], node: Node) -> Found:
        known = self._known
        matching: set[int] = set()
        label_sets = list(candidates)
        self._operations.evaluations += len(label_sets)
        matches = Selector(node).matches
        for start in range(0, len(label_sets), PORTION):
            portion = label_sets[start : start + PORTION]
            # Between portions a label set may have gone.
            matching.update(
                number
                for number in portion
                if known.lives(number) and matches(known.labels(number))
            )
            yield 2 * len(portion)
        return matching

    def _others(self, node: Node) -> Found:
        everybody = yield from self._all()
        return everybody - (yield from self._find(node))

    def _all(self) -> Found:
        label_sets = set(self._known.all())
        yield len(label_sets) // 20
        return label_sets

    def _having(self, pairs: Iterable[Anchor]) -> Found:
        known = self._known
        matching: set[int] = set()
        done = 0
        for anchor in pairs:
            for part in known.own(anchor):
                matching.update(part)
                done += 8 + len(part) // 20
                if done > PORTION:
                    yield done // 8
                    done = 0
            groups = list(known.groups.inheriting(anchor))
            if groups:
                label = anchor[0]
                inherited: set[int] = set()
                for group in groups:
                    inherited.update(group.label_sets)
                if known.has_own(label):
                    inherited -= yield from self._own(label)
                matching |= inherited
                yield len(inherited) // 20
        yield done // 8
        return matching

    def _own(self, label: str) -> Found:
        label_sets: set[int] = set()
        for part in self._known.own((label, None)):
            label_sets.update(part)
        yield len(label_sets) // 20
        return label_sets


def _conjuncts(operands: Iterable[Node]) -> Iterator[Node]:
    for operand in operands:
        if isinstance(operand, And):
            yield from _conjuncts(operand.operands)
        else:
            yield operand


def _is_negative(node: Node) -> bool:
    match node:
        case Not() | Compare(_, "!=", _) | InSet(_, _, True):
            return True
    return False
