"""From an interface to its endpoint's chain, in few steps (docs/reference/dataplane.md#dispatch).

A flat list of one rule per interface costs every packet the whole list, so names are binned by
the character after our prefix. A packet without an entry is dropped where the entry is missing:

    cali-from-wl-dispatch        one rule a bin: -i cali3+ goto cali-from-wl-dispatch-3; drop
    cali-from-wl-dispatch-3      one rule an endpoint: -i cali3f00 goto cali-fw-cali3f00; drop

A bin of one endpoint is that endpoint's rule.

Endpoints come and go while packets flow, and to take a rule out of a chain costs iptables-nft
several times what it costs to add one: the rules of a bin exclude each other, so a new one stands
first and no other moves. An endpoint's chain ends in a drop or returns with the accept mark,
through the gotos, to the calling chain; so no mark decides here.

Invariant:
  DSP-1  A packet of an interface with our prefix but without an endpoint is dropped, in both
         directions, whichever names exist and with any marks that it came with.
Tested in tests/felix/rules/test_rules.py.
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
    OutInterface,
    Rule,
)

_ALONE = 1
_PLAIN = frozenset(string.ascii_letters + string.digits)


@dataclass(frozen=True, slots=True)
class Direction:
    """The names and the match of one direction."""

    root: str
    endpoint: str
    matching: Callable[[str], InInterface | OutInterface]


DIRECTIONS = (
    Direction(names.FROM_WORKLOAD_DISPATCH, names.FROM_WORKLOAD, InInterface),
    Direction(names.TO_WORKLOAD_DISPATCH, names.TO_WORKLOAD, OutInterface),
)


def unknown(deny: Action) -> Rule:
    """What ends every chain of dispatch (DSP-1)."""
    return Rule(deny, comments=("Unknown interface",))


class Bins:
    """The interfaces of endpoints, binned; says which chains a change touches.

    A bin takes names of one prefix; where one prefix begins with another, bins would overlap, so
    there, and for names without a prefix of ours, the rule stands with the bins.
    """

    def __init__(self, prefixes: tuple[str, ...], deny: Action) -> None:
        self._end = unknown(deny)
        self._first = prefixes[0]
        self._prefixes = tuple(
            p for p in prefixes if not any(p != q and (p.startswith(q) or q.startswith(p))
                                           for q in prefixes)
        )  # fmt: skip
        self._bins: dict[str, dict[str, None]] = {}
        # The rules of an endpoint, by direction: a bin is told of whole, again and again.
        self._known: dict[str, dict[str, Rule]] = {}
        self._loners: dict[str, None] = {}

    def add(self, interface: str) -> list[Chain]:
        """An endpoint came: the chains that differ now, whole."""
        head = self._head(interface)
        self._known[interface] = {
            direction.root: _to_endpoint(direction, interface) for direction in DIRECTIONS
        }
        if head is None:
            self._loners[interface] = None
            return self._roots()
        members = self._bins.setdefault(head, {})
        members[interface] = None
        # The first stands in the root, alone.
        return [*self._chains(head), *(self._roots() if len(members) <= _ALONE + 1 else ())]

    def remove(self, interface: str) -> tuple[list[Chain], list[str]]:
        """Remove an endpoint: returns the chains that differ, and the names of removed ones."""
        head = self._head(interface)
        del self._known[interface]
        if head is None:
            del self._loners[interface]
            return self._roots(), []
        members = self._bins[head]
        del members[interface]
        if len(members) > _ALONE:
            return self._chains(head), []
        if not members:
            del self._bins[head]
            return self._roots(), []
        return self._roots(), [self._child(direction, head) for direction in DIRECTIONS]

    def all(self) -> list[Chain]:
        """Every chain."""
        return [*self._roots(), *(chain for head in self._bins for chain in self._chains(head))]

    def _head(self, interface: str) -> str | None:
        for prefix in self._prefixes:
            if interface.startswith(prefix) and interface != prefix:
                return interface[: len(prefix) + 1]
        return None

    def _roots(self) -> list[Chain]:
        return [
            self._chain(
                direction.root,
                *(
                    Rule(Goto(self._child(direction, head)), (direction.matching(f"{head}+"),))
                    for head, members in self._bins.items()
                    if len(members) > _ALONE
                ),
                *(
                    self._known[name][direction.root]
                    for members in self._bins.values()
                    if len(members) == _ALONE
                    for name in members
                ),
                *(self._known[name][direction.root] for name in self._loners),
            )
            for direction in DIRECTIONS
        ]

    def _chains(self, head: str) -> list[Chain]:
        if len(self._bins[head]) == _ALONE:
            return []
        return [
            self._chain(
                self._child(direction, head),
                *(self._known[name][direction.root] for name in self._bins[head]),
            )
            for direction in DIRECTIONS
        ]

    def _chain(self, name: str, *rules: Rule) -> Chain:
        return Chain(name, (*rules, self._end), unordered=True, closed=True)

    def _child(self, direction: Direction, head: str) -> str:
        if head[:-1] == self._first and head[-1] in _PLAIN:
            return f"{direction.root}-{head[-1]}"
        # A second prefix, or a character that a chain's name cannot hold.
        return names.limited(f"{direction.root}-", f"_{head.encode().hex()}")


def _to_endpoint(direction: Direction, name: str) -> Rule:
    chain = names.endpoint_chain(direction.endpoint, name)
    return Rule(Goto(chain), (direction.matching(name),))
