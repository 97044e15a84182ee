"""What leads off this node: to blocks of other nodes, and along the paths that BGP learned.

Both are worked out in slices, until something more urgent waits or a turn's time is up; the rest
follows in a later turn. Tested in tests/felix/dataplane/test_turns.py and
tests/felix/dataplane/test_remote_next_hops.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from felix.calc.changes import Changes
from felix.calc.learned_routes import PathTable
from felix.calc.nodes import Vtep
from felix.calc.remote import RemoteRoutes
from felix.calc.tunnels import TunnelSupport
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.remote_next_hops import RemoteNextHops
from felix.dataplane.routes.routes import RouteTable
from linux.prefixes import Prefix

PATHS_AT_ONCE, HOPS_AT_ONCE = 2000, 300
"""Paths judged, and next hops to other nodes found, without a pause."""


@dataclass(frozen=True, slots=True)
class TunnelEnds:
    """By what routes may lead to other nodes.

    `means`: the encapsulations that this node is able to use. `ends`: IPv6 tunnels' ends, by node.
    `mtus`: of the tunnels' devices, by index. `speaker`: a BGP speaker tells this node routes.
    """

    means: TunnelSupport
    ends: Mapping[str, Vtep]
    mtus: Mapping[int, int]
    speaker: bool


class OffNodeRoutes:
    """Tells the route table what should lead to other nodes and beyond."""

    def __init__(self, paths: PathTable, view: KernelView, routes: RouteTable) -> None:
        self._paths, self._view, self._routes = paths, view, routes
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
        news: Changes,
        tunnels: TunnelEnds,
        families: frozenset[int],
        paused: Callable[[], bool],
    ) -> None:
        """Bring the desired routes up to the calculation; stops at a slice's end if `paused`."""
        await self._to_nodes(news, tunnels, families, paused)
        await self._along_paths(news, families, paused)
        # Routes that are not desired may go once all paths are known.
        if (self._paths.complete or not tunnels.speaker) and not self.waits:
            self._routes.paths_known()

    async def _to_nodes(
        self,
        news: Changes,
        tunnels: TunnelEnds,
        families: frozenset[int],
        paused: Callable[[], bool],
    ) -> None:
        hops, me = self.next_hops, news.cluster.me
        while True:
            moved = hops.settle(
                news.routes, tunnels.means, self._view, me, tunnels.ends, HOPS_AT_ONCE
            )
            self._routes.want_cluster(hops.hops, moved, families, tunnels.mtus)
            if not hops.pending or paused():
                return
            await asyncio.sleep(0)

    async def _along_paths(
        self, news: Changes, families: frozenset[int], paused: Callable[[], bool]
    ) -> None:
        view, learned = self._view, self.learned
        learned.learn(news.paths(view.own_addresses()), view.base_routes(), view.dead_links())
        changed, self._changed = self._changed, {}
        learned.change(changed)
        while True:
            judged = learned.settle(PATHS_AT_ONCE)
            self._routes.want_remote(learned.hops, judged, families)
            if not learned.pending or paused():
                return
            await asyncio.sleep(0)
