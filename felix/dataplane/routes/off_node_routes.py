"""What leads off this node: to blocks of other nodes, and along the paths that BGP learned.

Both are worked out in slices, until something more urgent waits or a turn's time is up; the rest
follows in a later turn. Tested in tests/felix/dataplane/test_turns.py and
tests/felix/dataplane/test_remote_next_hops.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.calc.nodes import NodeFacts, Vtep
from felix.calc.remote import RemoteRoutes
from felix.calc.tunnels import Means
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.remote_next_hops import RemoteNextHops
from felix.dataplane.routes.routes import RouteTable
from linux.prefixes import Prefix

PATHS_AT_ONCE, HOPS_AT_ONCE = 2000, 300
"""Paths judged, and next hops to other nodes found, without a pause."""


class OffNodeRoutes:
    """Tells the route table what should lead to other nodes and beyond."""

    def __init__(
        self, calc: Calculator, paths: PathTable, view: KernelView, routes: RouteTable
    ) -> None:
        self._calc, self._paths, self._view, self._routes = calc, paths, view, routes
        self.learned = RemoteRoutes(paths)
        self.next_hops = RemoteNextHops()
        self._changed: dict[Prefix, None] = {}

    def paths_changed(self, prefixes: Iterable[Prefix]) -> None:
        """These paths differ now."""
        self._changed.update(dict.fromkeys(prefixes))

    @property
    def unfinished(self) -> bool:
        """Whether a slice is left."""
        return bool(self.learned.pending or self.next_hops.pending)

    @property
    def waits(self) -> bool:
        """Whether a slice is left, or a path has changed since the last one."""
        return self.unfinished or bool(self._changed)

    async def want(
        self,
        means: Means,
        ends: Mapping[str, Vtep],
        mtus: Mapping[int, int],
        families: frozenset[int],
        paused: Callable[[], bool],
    ) -> None:
        """Bring the wanted routes up to the calculation; stops at a slice's end if `paused`.

        `ends`: IPv6 tunnels' ends, by node; `mtus`: of the tunnels' devices, by index.
        """
        await self._to_nodes(means, ends, mtus, families, paused)
        await self._along_paths(families, paused)

    async def _to_nodes(
        self,
        means: Means,
        ends: Mapping[str, Vtep],
        mtus: Mapping[int, int],
        families: frozenset[int],
        paused: Callable[[], bool],
    ) -> None:
        calc, hops = self._calc, self.next_hops
        me = calc.nodes.get(calc.node, NodeFacts())
        while True:
            moved = hops.settle(calc.cluster, means, self._view, me, ends, HOPS_AT_ONCE)
            self._routes.want_cluster(hops.hops, moved, families, mtus)
            if not hops.pending or paused():
                return
            await asyncio.sleep(0)

    async def _along_paths(self, families: frozenset[int], paused: Callable[[], bool]) -> None:
        view, learned = self._view, self.learned
        facts = self._calc.path_facts(view.own_addresses())
        learned.learn(facts, view.base_routes(), view.dead_links())
        changed, self._changed = self._changed, {}
        learned.change(changed)
        while True:
            judged = learned.settle(PATHS_AT_ONCE)
            self._routes.want_remote(learned.hops, judged, families)
            if not learned.pending or paused():
                return
            await asyncio.sleep(0)

    def settle(self, *, speaker: bool) -> None:
        """Routes that are not wanted may go once all paths are known; `speaker`: one tells them."""
        if (self._paths.complete or not speaker) and not self.waits:
            self._routes.paths_known()
