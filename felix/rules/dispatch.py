"""From an interface to its endpoint's chain, in few steps (dataplane reference 2.7).

A flat list of one rule per interface costs every packet the whole list, so names are binned by
the character after our prefix. Endpoints come and go while packets flow, and to take a rule out
of a chain costs iptables-nft several times what it costs to add one: so a bin is a chain of
rules that exclude each other, in no order, that only grows when an endpoint comes, and what
drops an unknown interface stands before and after it, in a chain that never changes:

    cali-from-wl-dispatch        clear accept; jump the bins; drop what was not accepted
    cali-from-wl-known           one rule a bin: -i cali3+ goto cali-from-wl-dispatch-3
    cali-from-wl-dispatch-3      one rule an endpoint: -i cali3f00 goto cali-fw-cali3f00

An endpoint's chain ends in a drop or returns with the accept mark, through the two gotos, to
the first chain.

Invariant:
  DSP-1  A packet of an interface with our prefix but without an endpoint is dropped, in both
         directions, whichever names exist and whatever marks it came with.
Tested in tests/felix/test_rules.py.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

from felix.rules import names
from felix.rules.model import (
    Action,
    Chain,
    Goto,
    InInterface,
    Jump,
    Marks,
    OutInterface,
    Rule,
    clear_bits,
    is_clear,
)

_PLAIN = frozenset(string.ascii_letters + string.digits)


@dataclass(frozen=True, slots=True)
class Direction:
    """The names and the match of one direction."""

    root: str
    known: str
    endpoint: str
    matching: Callable[[str], InInterface | OutInterface]


DIRECTIONS = (
    Direction(names.FROM_WORKLOAD_DISPATCH, "cali-from-wl-known", names.FROM_WORKLOAD, InInterface),
    Direction(names.TO_WORKLOAD_DISPATCH, "cali-to-wl-known", names.TO_WORKLOAD, OutInterface),
)


def dispatch_roots(marks: Marks, deny: Action) -> list[Chain]:
    """The chains that never change (DSP-1)."""
    return [
        Chain(
            direction.root,
            (
                Rule(clear_bits(marks.accept)),
                Rule(Jump(direction.known)),
                Rule(deny, (is_clear(marks.accept),), ("Unknown interface",)),
            ),
        )
        for direction in DIRECTIONS
    ]


class Bins:
    """The interfaces of endpoints, binned; says which chains a change touches.

    A bin takes names of one prefix; where one prefix begins with another, bins would overlap, so
    there, and for names without a prefix of ours, the rule stands with the bins.
    """

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self._first = prefixes[0]
        self._prefixes = tuple(
            p for p in prefixes if not any(p != q and (p.startswith(q) or q.startswith(p))
                                           for q in prefixes)
        )  # fmt: skip
        self._bins: dict[str, dict[str, None]] = {}
        self._loners: dict[str, None] = {}

    def add(self, interface: str) -> list[Chain]:
        """An endpoint came: the unordered chains that differ now, whole."""
        head = self._head(interface)
        if head is None:
            self._loners[interface] = None
            return self._known()
        fresh = head not in self._bins
        self._bins.setdefault(head, {})[interface] = None
        return [*self._chains(head), *(self._known() if fresh else ())]

    def remove(self, interface: str) -> tuple[list[Chain], list[str]]:
        """An endpoint left: the chains that differ now, and the names of those that are gone."""
        head = self._head(interface)
        if head is None:
            del self._loners[interface]
            return self._known(), []
        members = self._bins[head]
        del members[interface]
        if members:
            return self._chains(head), []
        del self._bins[head]
        return self._known(), [self._child(direction, head) for direction in DIRECTIONS]

    def all(self) -> list[Chain]:
        """Every unordered chain."""
        return [*self._known(), *(chain for head in self._bins for chain in self._chains(head))]

    def _head(self, interface: str) -> str | None:
        for prefix in self._prefixes:
            if interface.startswith(prefix) and interface != prefix:
                return interface[: len(prefix) + 1]
        return None

    def _known(self) -> list[Chain]:
        return [
            Chain(
                direction.known,
                (
                    *(
                        Rule(Goto(self._child(direction, head)), (direction.matching(f"{head}+"),))
                        for head in self._bins
                    ),
                    *(_to_endpoint(direction, name) for name in self._loners),
                ),
                unordered=True,
            )
            for direction in DIRECTIONS
        ]

    def _chains(self, head: str) -> list[Chain]:
        return [
            Chain(
                self._child(direction, head),
                tuple(_to_endpoint(direction, name) for name in self._bins[head]),
                unordered=True,
            )
            for direction in DIRECTIONS
        ]

    def _child(self, direction: Direction, head: str) -> str:
        if head[:-1] == self._first and head[-1] in _PLAIN:
            return f"{direction.root}-{head[-1]}"
        # A second prefix, or a character that a chain's name cannot hold.
        return names.limited(f"{direction.root}-", f"_{head.encode().hex()}")


def _to_endpoint(direction: Direction, name: str) -> Rule:
    chain = names.endpoint_chain(direction.endpoint, name)
    return Rule(Goto(chain), (direction.matching(name),))
