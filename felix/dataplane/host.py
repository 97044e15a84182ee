"""The kernel's tables of this namespace, read and kept up to date: sockets, dumps, monitor.

Dumps run in a thread; what the monitor tells meanwhile waits until the dump is in the view,
so a notification is never overwritten by an older dump.
Tested in tests/felix/test_repair.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from felix.calc.endpoints import Endpoint
from felix.dataplane.routes import RouteTable
from felix.dataplane.view import FoundRoutes, KernelView, sort_routes
from linux import addresses, links, routes
from linux.monitor import ADDRESSES, LINKS, ROUTES, SETTINGS, Event, Monitor
from linux.netlink import Socket
from linux.routes import TABLE_MAIN


class Host:
    """The view of the kernel and what keeps it true. Use inside a running event loop."""

    def __init__(
        self,
        view: KernelView,
        table: RouteTable,
        changed: Callable[[], None],
        linger: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.view, self._table, self._changed = view, table, changed
        self.sock = Socket()
        self._dumper = Socket()
        groups = LINKS + ADDRESSES + ROUTES + SETTINGS
        self._monitor = Monitor(groups, own=self.sock.port, linger=linger)
        self._held: list[Event] | None = None

    def listen_now(self) -> None:
        """Do not wait for more of what the kernel tells."""
        self._monitor.listen_now()

    async def watch(self) -> None:
        """Feed the view with what the kernel tells, for ever."""
        async for batch in self._monitor.batches():
            if self._held is not None:
                self._held.extend(batch)
            else:
                self._absorb(batch)
                self._changed()

    async def refresh(self, *, everything: bool, all_routes: bool) -> None:
        """Dump what is stale or asked for. Raises `KernelError`; the next call tries again."""
        view = self.view
        everything = everything or view.stale_all
        all_routes = all_routes or view.stale_routes
        if everything or all_routes:
            self._held = []
            try:
                if everything:
                    found = await asyncio.to_thread(links.dump, self._dumper)
                    view.replace_links(found, await asyncio.to_thread(addresses.dump, self._dumper))
                    view.stale_all = False
                if all_routes:
                    view.replace_routes(await asyncio.to_thread(self._dump_routes))
                    view.stale_routes = False
                    self._table.replace_actual(view.own)
            finally:
                held, self._held = self._held, None
                self._absorb(held or ())
        for index in list(view.stale_links):
            link = links.get(self.sock, index)
            view.stale_links.discard(index)
            if link is not None:
                view.put_link(link)

    def _dump_routes(self) -> FoundRoutes:
        return sort_routes(routes.dump(self._dumper, table=TABLE_MAIN))

    def verify(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Look up the routes of workloads whose link was talked about."""
        suspects, self.view.suspects = self.view.suspects, set()
        by_index = {index: self.view.links.get(index) for index in suspects}
        for link in by_index.values():
            endpoint = endpoints.get(link.name) if link else None
            if link is None or endpoint is None:
                continue
            for network in endpoint.networks:
                if self._table.in_force(network, link.index):
                    found = routes.lookup(self.sock, network.network_address)
                    self._table.confirm(network, link.index, found)

    def touch(self, indexes: Iterable[int]) -> None:
        """Read these links again before the next look: their settings were just written."""
        self.view.stale_links.update(indexes)

    def _absorb(self, events: Iterable[Event]) -> None:
        self._table.saw(self.view.absorb(events))

    def close(self) -> None:
        """Give the sockets back; the kernel's tables stay."""
        self._monitor.close()
        self.sock.close()
        self._dumper.close()


def has_ipv6() -> bool:
    """Whether this kernel speaks IPv6 at all."""
    return Path("/proc/net/if_inet6").exists()
