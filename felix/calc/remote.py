"""Remote routes: accepted paths with their next hops resolved, kept up to date by what changed.

A change of one path costs one check and one look-up; only a change of what all depend on
(pools, own blocks, the kernel's own routes) goes over all of them.
Tested in tests/felix/test_calc_remote.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network

from felix.calc.nexthops import Resolver
from felix.calc.paths import LearnedPath, PathFacts, PathTable, refusal
from linux.routes import NextHop, Route

IPNetwork = IPv4Network | IPv6Network
UNREACHABLE = "no route leads to its next hop"


class RemoteRoutes:
    """What the paths of `bgp` mean for this node's routing table."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self.hops: dict[IPNetwork, tuple[NextHop, ...]] = {}
        self.refused: dict[IPNetwork, str] = {}
        self.unresolved: set[IPNetwork] = set()
        self._facts = PathFacts()
        self._kernel: tuple[tuple[Route, ...], frozenset[int]] = ((), frozenset())
        self._external: dict[IPNetwork, LearnedPath] = {}
        self._resolver = Resolver((), {})

    def learn(
        self, facts: PathFacts, routes: tuple[Route, ...], dead: frozenset[int]
    ) -> set[IPNetwork]:
        """What everything depends on; returns the prefixes whose route differs now."""
        if facts == self._facts and (routes, dead) == self._kernel:
            return set()
        self._facts, self._kernel = facts, (routes, dead)
        return self._all()

    def change(self, prefixes: Iterable[IPNetwork]) -> set[IPNetwork]:
        """These paths changed in the table; returns the prefixes whose route differs now."""
        prefixes = list(prefixes)
        external = any(
            prefix in self._external or ((path := self.table.paths.get(prefix)) and path.external)
            for prefix in prefixes
        )
        return self._all() if external else self._evaluate(prefixes)

    def _all(self) -> set[IPNetwork]:
        external = {
            prefix: path
            for prefix, path in self.table.paths.items()
            if path.external and not refusal(path, self._facts)
        }
        self._external = external
        self._resolver = Resolver(self._kernel[0], external, self._kernel[1])
        return self._evaluate({*self.table.paths, *self.hops, *self.refused, *self.unresolved})

    def _evaluate(self, prefixes: Iterable[IPNetwork]) -> set[IPNetwork]:
        changed = set()
        for prefix in prefixes:
            before = self.hops.get(prefix, ())
            hops: tuple[NextHop, ...] = ()
            reason = ""
            self.unresolved.discard(prefix)
            path = self.table.paths.get(prefix)
            if path is not None:
                reason = refusal(path, self._facts)
                if not reason:
                    hops = self._resolver.resolve(path)
                    if not hops:
                        self.unresolved.add(prefix)
            if reason:
                self.refused[prefix] = reason
            else:
                self.refused.pop(prefix, None)
            if hops:
                self.hops[prefix] = hops
            else:
                self.hops.pop(prefix, None)
            if hops != before:
                changed.add(prefix)
        return changed

    def complaints(self) -> dict[str, str]:
        """Every path that is not in use, and why."""
        return {
            **self.table.malformed,
            **{str(prefix): reason for prefix, reason in self.refused.items()},
            **{str(prefix): UNREACHABLE for prefix in self.unresolved},
        }
