"""Remote routes: accepted paths with their next hops resolved, kept up to date by what changed.

There may be a hundred thousand paths by a handful of next hops. A path is judged once when it
changes; next hops are resolved once for all paths. A change of an external path, by which
others may be resolved, costs the answers that it concerns (`Resolution`). A change of what all
depend on (pools, own blocks, the kernel's own routes) goes over what it may concern. What is to be
done waits in `pending`, so that the main loop may take it in slices.

Invariants:
  RMT-1  Once nothing is pending, the result is what a calculation from scratch gives.
Tested in tests/felix/calc/test_remote.py (hypothesis).
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from itertools import islice

from felix.calc.learned_routes import PathFacts, PathTable, RouteAcceptance, Via
from felix.calc.nexthops import Resolution, Resolver
from linux import prefixes
from linux.prefixes import Networks, Prefix
from linux.route_values import NextHop, Route

UNREACHABLE = "no route leads to its next hop"
_SPARE_WAYS = 256
"""How many ways may be left without a path before they are swept."""


class RemoteRoutes:
    """What the paths of `bgp` mean for this node's routing table."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self.hops: dict[Prefix, tuple[NextHop, ...]] = {}
        self.refused: dict[Prefix, str] = {}
        self.unresolved: set[Prefix] = set()
        self._facts = PathFacts()
        self._judge = RouteAcceptance(self._facts)
        self._kernel: tuple[tuple[Route, ...], frozenset[int]] = ((), frozenset())
        self._resolver = Resolver((), {})
        self._ways: dict[Via, Resolution] = {}
        # Of external paths that their next hops would be resolved by.
        self._own_ways: dict[Prefix, tuple[Via, Resolution]] = {}
        self._ways_at_most = _SPARE_WAYS
        self._pending: dict[Prefix, None] = {}
        self._version = 0
        self._told: tuple[tuple[int, int], dict[str, str]] | None = None

    @property
    def pending(self) -> bool:
        """Whether something waits for `settle`."""
        return bool(self._pending)

    def learn(self, facts: PathFacts, routes: tuple[Route, ...], dead: frozenset[int]) -> None:
        """What everything depends on."""
        if facts != self._facts:
            self._facts, self._judge = facts, RouteAcceptance(facts)
            self._pending.update(dict.fromkeys(self.table.paths))
        if (routes, dead) != self._kernel:
            self._kernel = (routes, dead)
            self._resolver = Resolver(routes, self._resolver.external, dead)
            self._resolve_again(None)

    def change(self, changed: Iterable[Prefix]) -> None:
        """These paths changed in the table."""
        self._pending.update(dict.fromkeys(changed))

    def settle(self, limit: int | None = None) -> KeysView[Prefix]:
        """Judge what waits, so many paths at most; returns the prefixes whose route differs now."""
        if limit is None or len(self._pending) <= limit:
            batch, self._pending = list(self._pending), {}
        else:
            batch = list(islice(self._pending, limit))
            for prefix in batch:
                del self._pending[prefix]
        changed: dict[Prefix, None] = {}
        moved: set[Prefix] = set()
        for prefix in batch:
            self._settle(prefix, changed, moved)
        if moved:
            self._resolve_again(Networks(moved))
        if len(self._ways) > self._ways_at_most:
            used = set(self.table.paths.values())
            self._ways = {via: way for via, way in self._ways.items() if via in used}
            self._ways_at_most = 2 * len(self._ways) + _SPARE_WAYS
        if limit is None and self._pending:
            # What hangs on external paths of this batch; those are settled now.
            changed.update(dict.fromkeys(self.settle()))
        return changed.keys()

    def _settle(self, prefix: Prefix, changed: dict[Prefix, None], moved: set[Prefix]) -> None:
        via = self.table.paths.get(prefix)
        reason = self._judge.refusal(prefix, via) if via is not None else ""
        taken = via if not reason else None
        if reason:
            if self.refused.get(prefix) != reason:
                self.refused[prefix] = reason
                self._version += 1
        elif self.refused and self.refused.pop(prefix, None) is not None:
            self._version += 1
        external = taken if taken is not None and taken.external else None
        if (external is not None or prefix in self._resolver.external) and self._resolver.put(
            prefix, external
        ):
            moved.add(prefix)
        hops = self._hops(prefix, taken) if taken is not None else ()
        if (taken is not None and not hops) != (prefix in self.unresolved):
            self.unresolved ^= {prefix}
            self._version += 1
        if hops != self.hops.get(prefix, ()):
            changed[prefix] = None
            if hops:
                self.hops[prefix] = hops
            else:
                del self.hops[prefix]

    def _hops(self, prefix: Prefix, via: Via) -> tuple[NextHop, ...]:
        """By which hops an accepted path is followed."""
        way = self._ways.get(via)
        if way is None:
            way = self._ways[via] = self._resolver.way(via)
        if prefix not in way.through:
            self._own_ways.pop(prefix, None)
            return way.hops
        own = self._resolver.way(via, prefix)
        self._own_ways[prefix] = (via, own)
        return own.hops

    def _resolve_again(self, moved: Networks | None) -> None:
        """External paths within these networks changed, or (None) what the kernel has."""
        others = {
            via: way
            for via, way in self._ways.items()
            if moved is None or any(map(moved.hold, way.addresses))
        }
        differing = set()
        for via, before in others.items():
            way = self._ways[via] = self._resolver.way(via)
            if way.hops != before.hops or way.through != before.through:
                differing.add(via)
        if differing:
            paths = self.table.paths.items()
            self._pending.update((prefix, None) for prefix, via in paths if via in differing)
        for prefix, (via, before) in list(self._own_ways.items()):
            if self.table.paths.get(prefix) != via:
                del self._own_ways[prefix]
            elif moved is None or any(map(moved.hold, before.addresses)):
                self._pending[prefix] = None

    def complaints(self) -> Mapping[str, str]:
        """Every path that is not in use, and why; the same object while nothing changed.

        While much is pending it is the one before.
        """
        version = (self._version, self.table.version)
        if self._told is None or (self._told[0] != version and not self._pending):
            reasons = dict(self.table.malformed)
            reasons |= {prefixes.text(prefix): why for prefix, why in self.refused.items()}
            reasons |= {prefixes.text(prefix): UNREACHABLE for prefix in self.unresolved}
            self._told = (version, reasons)
        return self._told[1]
