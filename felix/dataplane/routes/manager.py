"""The manager of routes: those to this node's pods, to other nodes, and along BGP's paths.

Routes that Calico left go once ours stand; connections of an address that left go before it gets a
new route. What is much is written in slices, until something more urgent is to be done.
Tested in tests/felix/dataplane/test_turns.py, test_event_order.py and tests/felix/kernel/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix.calc.changes import Changes
from felix.calc.endpoints import Endpoint, addresses
from felix.calc.learned_routes import PathTable
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.conntrack_flush import ConntrackFlusher
from felix.dataplane.routes.kernel_reader import KernelReader
from felix.dataplane.routes.off_node_routes import OffNodeRoutes, TunnelEnds
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.routes.stale_routes import StaleRoutes
from felix.dataplane.routes.writing import Outcome
from felix.dataplane.turn.wake import Wake
from libcalico.process.summaries import Summary
from linux.prefixes import Prefix

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
AT_ONCE = 0.1
"""A turn's seconds for routes."""


class RouteManager:
    """The routes of one node. `flows_gone` is called when old connections were removed.

    `unsafe`: addresses that get no route, because other rules than their own would be met.
    `unread`: whether the calculation has news of an interface. `written`: how many routes were
    written or deleted so far.
    """

    def __init__(
        self,
        view: KernelView,
        dirty: DirtySet,
        paths: PathTable,
        wake: Wake,
        flows_gone: Callable[[], None],
        unread: Callable[[str], bool],
    ) -> None:
        self._view, self._wake, self._unread = view, wake, unread
        self.paths = paths
        self.routes = RouteTable(dirty)
        self.off_node = OffNodeRoutes(paths, view, self.routes)
        self.stale = StaleRoutes()
        self.unsafe: frozenset[IPAddress] = frozenset()
        self.written = 0
        self._flusher = ConntrackFlusher(flows_gone)
        self._spared: set[IPAddress] = set()
        self._changed: set[str] = set()
        self._stale_due = False

    @property
    def held(self) -> frozenset[IPAddress]:
        """Addresses that may have no route yet."""
        return self._flusher.held | self.unsafe

    @property
    def flow_waits(self) -> Summary:
        """Seconds for which addresses had no route, because old connections were removed."""
        return self._flusher.waits

    def paths_changed(self, prefixes: Iterable[Prefix]) -> None:
        """These paths differ now."""
        self.off_node.paths_changed(prefixes)
        self._wake.go_on()

    # -- what becomes of connections -----------------------------------------------------------

    def flows_forgotten(self, endpoint: Endpoint) -> None:
        """Its link is gone, and after that its flows were deleted by another program."""
        self.routes.link_left(endpoint.interface)
        self._spared.update(network.network_address for network in endpoint.networks)

    def endpoints_left(
        self,
        before: Mapping[str, Endpoint],
        after: Mapping[str, Endpoint],
        about: frozenset[str] | None,
    ) -> frozenset[IPAddress]:
        """Have the connections removed of those that left; returns the addresses that another
        program has seen to, which `turn_ended` takes.
        """
        spared = frozenset(self._spared)
        self._flusher.left(before, after, about, spared)
        return spared

    # -- the steps of a turn -------------------------------------------------------------------

    async def commit(
        self,
        host: KernelReader,
        news: Changes,
        families: frozenset[int],
        floating: Mapping[str, tuple[IPNetwork, ...]],
        ends: TunnelEnds | None,
        about: frozenset[str] | None,
    ) -> dict[str, str]:
        """Write what differs, very much of it in slices; returns failures.

        `floating`: floating addresses by interface; `ends`: what leads to other nodes goes by,
        in a turn about everything.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + AT_ONCE
        blackholes = news.blackholes() if about is None else frozenset[IPNetwork]()
        self.routes.want_local(news.active, blackholes, self._view, families, floating, about)
        if ends is not None:
            await self.off_node.want(
                news, ends, families, lambda: self._wake.hurry or clock() > until
            )
            if self.off_node.unfinished:
                self._wake.go_on()
        host.verify(news.active)
        outcome = Outcome()
        for _ in self.routes.commit(
            host, self._view, held=self.held, awaits=self._unread, outcome=outcome
        ):
            await asyncio.sleep(0)
            if self._wake.hurry or clock() > until:
                self._wake.go_on()
                break
        if self._view.outdated:
            self._wake.go_on()
        self.written += outcome.written + outcome.deleted
        self._changed |= outcome.pods
        if outcome.departed:
            gone = outcome.departed - addresses(news.active, news.active) - self._spared
            self._flusher.flush(gone)
        return {f"route {network}": reason for network, reason in outcome.failures.items()}

    def turn_ended(self, spared: frozenset[IPAddress]) -> set[str]:
        """The interfaces whose routes were written since the last turn's end."""
        changed, self._changed = self._changed, set()
        self._spared -= spared
        return changed

    def remove_stale(self, host: KernelReader, news: Changes, *, reread: bool, fit: bool) -> None:
        """Take away what Calico left; `reread`: routes were read back. It waits for a turn that
        did all it had to (`fit`), once everything that is known has its route, and for a view that
        is not to be read again (RTE-5).
        """
        self._stale_due |= reread
        settled = self.routes.remote_known and not self.off_node.waits
        if self._stale_due and fit and settled and not self._view.outdated:
            self._stale_due = False
            desired = self.routes.table.desired.keys()
            pools = news.cluster.pools.values()
            self.stale.sweep(host, self._view, pools, desired, news.routes)

    async def stop(self) -> None:
        """End what runs beside; the kernel's routes stay."""
        await self._flusher.stop()
