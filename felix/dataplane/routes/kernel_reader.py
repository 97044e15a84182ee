"""The kernel's tables of this namespace, read and kept up to date: sockets, dumps, monitor.

Dumps run in a thread; what the monitor tells meanwhile waits until the dump is in the view,
so a notification is never overwritten by an older dump. A dump counts only once all that was
queued before it has been read as well (VIEW-1): what it shows may be newer than what was read,
a route to a link that nothing was heard of above all.
Tested in tests/felix/dataplane/test_event_order.py, test_repair.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from felix.calc.endpoints import Endpoint
from felix.dataplane.devices.view import FoundRoutes, KernelView, sort_routes
from felix.dataplane.routes.pins import Pins
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.routes.writing import Failures
from linux import addresses, links, routes
from linux.monitor import ADDRESSES, LINKS, ROUTES, SETTINGS, Monitor
from linux.monitor.events import Event, LinkChanged
from linux.netlink import Socket
from linux.routes import TABLE_MAIN, Route, RouteKey

READINGS = 3
"""How often in one turn tables are read again because something was told meanwhile."""


class KernelReader:
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
        self.pins = Pins(view, changed)
        # Own routes that were written when this was how often all had been read: what is told of
        # them until all has been read again may be older than the write.
        self._doubtful: set[RouteKey] = set()
        self._doubtful_at = 0

    def hear_now(self) -> bool:
        """Take in what the kernel has told until now; False where that cannot be all."""
        if self._held is not None:
            # A dump is under way, and what was told meanwhile counts after it.
            return False
        emptied = self._monitor.read_now()
        events = self._monitor.pop_pending()
        self._absorb(events)
        if events:
            self._changed()
        return emptied

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
        for _ in range(READINGS):
            everything, all_routes = everything or view.stale_all, all_routes or view.stale_routes
            if not (everything or all_routes):
                break
            await self._read(everything=everything, all_routes=all_routes)
            everything = all_routes = False
        self._look_again()
        if view.outdated:
            self._changed()

    async def _read(self, *, everything: bool, all_routes: bool) -> None:
        view = self.view
        queued = self._held = []
        try:
            if everything:
                dumped = await asyncio.to_thread(links.dump, self._dumper)
                view.replace_links(dumped, await asyncio.to_thread(addresses.dump, self._dumper))
                view.stale_all = False
            if all_routes:
                began = time.monotonic()
                view.replace_routes(await asyncio.to_thread(self._dump_routes))
                view.heard.route_reads.observe(time.monotonic() - began)
                view.stale_routes = False
                self._table.replace_actual(view.own)
                await self.pins.read(self._dumper)
            await self._monitor.catch_up()
        finally:
            self._held = None
            queued += self._monitor.pop_pending()
            self._absorb(queued)
            if everything:
                # Older than the dump, maybe, and some settings change in silence.
                view.stale_links.update(_links_of(queued) & view.links.keys())

    def _look_again(self) -> None:
        """Links whose settings may be others than was told."""
        looked = {index: links.get(self.sock, index) for index in self.view.stale_links}
        if not looked:
            return
        self._monitor.read_now()
        events = self._monitor.pop_pending()
        self._absorb(events)
        changed = _links_of(events)
        for index, link in looked.items():
            if index in changed:
                # Before this look or after it: the next one will say.
                self.view.stale_links.add(index)
                continue
            self.view.stale_links.discard(index)
            if link is not None:
                self.view.put_link(link)

    def _dump_routes(self) -> FoundRoutes:
        return sort_routes(routes.dump(self._dumper, table=TABLE_MAIN))

    def write(
        self,
        upserts: Sequence[Route],
        removals: Sequence[Route],
        account: Callable[[Failures], None],
    ) -> None:
        """Write routes (`felix.dataplane.routes.writing.Writer`)."""
        messages = [routes.replace(route) for route in upserts]
        messages += [routes.delete(route) for route in removals]
        account(self.sock.transact_all(messages))
        # What is queued now may be older or newer than the write: nothing tells.
        self._doubtful.update(route.key for route in (*upserts, *removals))
        self._doubtful_at = self._monitor.emptied
        self.hear_now()

    def verify(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Look up the routes of workloads whose link was talked about, and their neighbours."""
        view = self.view
        self.pins.commit(self.sock, endpoints)
        suspects, view.suspects = view.suspects, set()
        for index in suspects:
            link = view.links.get(index)
            if link is None:
                continue
            believed = self._table.believed(link)
            if believed is None and any(route.oif == index for route in view.own.values()):
                view.stale_routes = True
            # Of others' routes, which stand in the way of ours (RTE-2), a dump tells.
            view.stale_routes = view.stale_routes or view.leads_elsewhere(index)
            for route in believed or ():
                in_kernel = routes.lookup(self.sock, route.dst.network_address)
                if not self._table.confirm(route, in_kernel):
                    view.lose_own(route.key)

    def touch(self, indexes: Iterable[int]) -> None:
        """Read these links again before the next look: their settings were just written."""
        self.view.stale_links.update(indexes)

    def _absorb(self, events: Collection[Event]) -> None:
        self._table.saw(self.view.absorb(events, self._doubtful))
        if self._doubtful and self._monitor.emptied != self._doubtful_at:
            self._doubtful.clear()

    def close(self) -> None:
        """Give the sockets back; the kernel's tables stay."""
        self._monitor.close()
        self.sock.close()
        self._dumper.close()


def _links_of(events: Iterable[Event]) -> set[int]:
    return {event.link.index for event in events if isinstance(event, LinkChanged)}
