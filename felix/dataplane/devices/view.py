"""What the kernel has, as far as dumps and notifications told: links, addresses, routes.

Absorbs events, knows what must be looked at again. When a link goes down the kernel drops its
IPv4 routes in silence, and a link that went down and up is told once, as up. So any word about
a workload's link makes it `suspect` (its few routes are looked up), and any change of another
link asks for a dump of the routes.

A dump is newer than events that were not read when it was made, and so is what felix wrote itself,
of which the monitor does not tell. An older event must not be believed over either:

    cali-cni makes link 7          queued    "link 7"
    cali-cni writes 10.65.0.1/32   queued    "link 7", "route to link 7"
    felix dumps the routes: the dump has the route, the view has no link 7
    felix removes the route        queued    "link 7", "route to link 7"  (its own write is not)
    felix reads the queue          the view has link and route, the kernel has no route

So `KernelReader` reads all that is queued before a dump counts, and after each own write, when what
was queued is `doubtful` where it is about the same route: older than the write, or not.

Invariants:
  VIEW-1  After a dump and all events up to it, the view equals the kernel's tables; after all
          later events again. No order of dumps, events and own writes leaves a difference without
          a `stale_` mark.
Tested in tests/felix/dataplane/test_event_order.py, test_dataplane_parts.py and test_repair.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Set
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix import ROUTE_PROTOCOL
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.heard import Heard
from felix.dataplane.devices.host_facts import HostFacts, host_facts
from linux.addresses import Address
from linux.links import Link
from linux.monitor.events import (
    AddressChanged,
    Event,
    LinkChanged,
    Overrun,
    RouteChanged,
    SettingChanged,
)
from linux.route_values import PROTOCOL_KERNEL
from linux.routes import TABLE_MAIN, Route, RouteKey

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


FoundRoutes = tuple[dict[RouteKey, Route], dict[RouteKey, Route]]


def sort_routes(routes: Iterable[Route]) -> FoundRoutes:
    """Our own and foreign routes of the main table, for `KernelView.replace_routes`. Pure.

    Apart from it because it takes long where there are very many: a thread does it.
    """
    own: dict[RouteKey, Route] = {}
    foreign: dict[RouteKey, Route] = {}
    for route in routes:
        if route.table == TABLE_MAIN:
            (own if route.protocol == ROUTE_PROTOCOL else foreign)[route.key] = route
    return own, foreign


class KernelView:
    """Links, addresses and the main table of one network namespace.

    `stale_routes` and `stale_all` ask for dumps; `stale_links` are links whose settings changed
    unseen; `suspects` are workload links whose routes may be gone. `links_version` grows with
    every word about a link, `host_links_version` about one that is no workload's.
    `global_settings`: what all links share may be another now. `touched`: whose endpoints the
    kernel's word was about; of what is not about a workload's link it says everything.
    """

    def __init__(self, prefixes: tuple[str, ...], touched: DirtySet | None = None) -> None:
        self.prefixes = prefixes
        self.touched = touched or DirtySet()
        self.links: dict[int, Link] = {}
        self.addresses: dict[tuple[int, str], Address] = {}
        self.own: dict[RouteKey, Route] = {}
        self.foreign: dict[RouteKey, Route] = {}
        self.stale_all = True
        self.stale_routes = True
        self.stale_links: set[int] = set()
        self._arriving: dict[int, str] = {}
        self.suspects: set[int] = set()
        self._by_name: dict[str, int] = {}
        self.links_version = self.host_links_version = 0
        self.global_settings = True
        self._dead: tuple[int, frozenset[int]] | None = None
        self._host: HostFacts | None = None
        self._base_routes: tuple[Route, ...] | None = None
        self._foreign_links: set[int] | None = None
        self.heard = Heard()

    @property
    def outdated(self) -> bool:
        """Whether tables are to be read again: until then nothing may be removed by this view."""
        return self.stale_all or self.stale_routes

    @property
    def stale(self) -> bool:
        """Whether something is to be read again."""
        return bool(self.stale_all or self.stale_routes or self.stale_links or self.suspects)

    def link_named(self, name: str) -> Link | None:
        """The link of this name."""
        index = self._by_name.get(name)
        return self.links.get(index) if index is not None else None

    def is_workload(self, index: int) -> bool:
        """Whether a link is one of ours by its name."""
        link = self.links.get(index)
        name = link.name if link is not None else self._arriving.get(index, "")
        return name.startswith(self.prefixes)

    def own_addresses(self) -> frozenset[IPAddress]:
        """This node's addresses, without workload interfaces, loopback and link-local ones."""
        return self._host_facts().own_addresses

    def host_interfaces(self) -> Mapping[str, Set[IPAddress]]:
        """The links that are no workload's, by name, each with its addresses; the same object
        while nothing changed.
        """
        return self._host_facts().interfaces

    def networks(self) -> Mapping[str, str]:
        """The networks of the addresses in `own_addresses`, each with its link's name; the same
        object while nothing changed. Two links in one network: the one with the lower index.
        """
        return self._host_facts().networks

    def _host_facts(self) -> HostFacts:
        if self._host is None or self._host.prefixes != self.prefixes:
            self._host = host_facts(self.links, self.addresses, self.prefixes, self.is_workload)
        return self._host

    def _forget_addresses(self) -> None:
        self._host = None

    def base_routes(self) -> tuple[Route, ...]:
        """Routes that next hops are resolved over: foreign ones, not towards workloads."""
        if self._base_routes is None:
            self._base_routes = tuple(
                route for route in self.foreign.values() if self._is_base(route)
            )
        return self._base_routes

    def _is_base(self, route: Route) -> bool:
        return not any(self.is_workload(hop.oif) for hop in route.next_hops)

    def _renamed(self, link: Link, before: Link | None) -> None:
        """Whether this link is a workload's may be another answer now."""
        known = self._base_routes or ()
        workload = link.name.startswith(self.prefixes)
        was_workload = before is None or before.name.startswith(self.prefixes)
        # A new workload's link changes nothing that is kept, unless it was taken for another's.
        taken_right = before is None and link.index in self._arriving
        if not (workload and was_workload) or not (
            taken_right or all(i != link.index for i, _ in self.addresses)
        ):
            self._forget_addresses()
        if not workload or any(hop.oif == link.index for r in known for hop in r.next_hops):
            self._base_routes = None

    def dead_links(self) -> frozenset[int]:
        """Links that carry nothing now."""
        if self._dead is None or self._dead[0] != self.links_version:
            dead = (i for i, link in self.links.items() if not (link.up and link.carrier))
            self._dead = (self.links_version, frozenset(dead))
        return self._dead[1]

    def put_link(self, link: Link) -> None:
        """A link as a look-up found it."""
        self.links[link.index] = link
        self._speaks_of(link)

    def _speaks_of(self, link: Link) -> None:
        """There was a word about this link."""
        self.links_version += 1
        if link.name.startswith(self.prefixes):
            self.touched.mark((link.name,))
        else:
            self.host_links_version += 1
            self.touched.mark_everything()

    def replace_links(self, links: Iterable[Link], addresses: Iterable[Address]) -> None:
        """What a dump of links and addresses said."""
        self.links = {link.index: link for link in links}
        self._by_name = {link.name: link.index for link in self.links.values()}
        self.addresses = {(a.index, str(a.interface)): a for a in addresses}
        self.links_version += 1
        self.host_links_version += 1
        self.touched.mark_everything()
        self._forget_addresses()
        self._base_routes = None

    def replace_routes(self, found: FoundRoutes) -> None:
        """What a dump of the main table said."""
        self.own, self.foreign = found
        self._base_routes = self._foreign_links = None
        self.touched.mark_everything()

    def absorb(
        self, events: Iterable[Event], doubtful: Container[RouteKey] = ()
    ) -> dict[RouteKey, Route | None]:
        """Take notifications; returns own routes as they are now (None: gone, or not known).

        `doubtful`: routes that felix wrote itself, maybe later than what is told of them here.
        """
        own_changes: dict[RouteKey, Route | None] = {}
        events = tuple(events)
        self.heard.count(events)
        self._arriving = self._arrivals(events)
        for event in events:
            match event:
                case LinkChanged():
                    self._link(event, own_changes)
                case AddressChanged():
                    self._address(event)
                case RouteChanged(route, _) if route.table != TABLE_MAIN:
                    continue
                case RouteChanged(route, removed) if route.key in doubtful:
                    self._doubt(route, removed, own_changes)
                case RouteChanged(route, removed):
                    self._route(route, removed, own_changes)
                case SettingChanged(index, _):
                    if index > 0:
                        self.stale_links.add(index)
                    else:
                        self.global_settings = True
                        self.touched.mark_everything()
                case Overrun():
                    self.stale_all = self.stale_routes = True
                    self.touched.mark_everything()
        self._arriving = {}
        return own_changes

    def _arrivals(self, events: Iterable[Event]) -> dict[int, str]:
        """The names of links that are new with these events: a link is told of as it is at last,
        behind its addresses and routes, and whose these are must be known when they are read.
        """
        fresh = {
            event.link.index: event.link.name
            for event in events
            if isinstance(event, LinkChanged) and event.link.index not in self.links
        }
        for index, _ in self.addresses if fresh else ():
            fresh.pop(index, None)
        return fresh

    def _address(self, event: AddressChanged) -> None:
        address, removed = event.address, event.removed
        key, ip = (address.index, str(address.interface)), address.interface.ip
        known = self.addresses.pop(key, None)
        if not removed:
            self.addresses[key] = address
        pods = self.is_workload(address.index)
        if not pods and (known is not None or not removed):
            self._forget_addresses()
            self.touched.mark_everything()
        # An IPv4 address that goes takes its connected route along, in silence.
        went = removed or event.fell
        self.stale_routes = self.stale_routes or (went and ip.version == 4)

    def wrote(self, key: RouteKey, route: Route | None) -> None:
        """An own route is as we just wrote it; the monitor does not tell of that."""
        if route is None:
            self.own.pop(key, None)
        else:
            self.own[key] = route
            # What it replaced is gone, of which the monitor does not tell either.
            self.lose_foreign(key)

    def lose_own(self, key: RouteKey) -> None:
        """A look-up did not find an own route."""
        self.own.pop(key, None)

    def leads_elsewhere(self, index: int) -> bool:
        """Whether routes of other programs may lead to this link."""
        if self._foreign_links is None:
            self._foreign_links = {
                route.oif for route in self.foreign.values() if route.protocol != PROTOCOL_KERNEL
            }
        return index in self._foreign_links

    def _link(self, event: LinkChanged, own_changes: dict[RouteKey, Route | None]) -> None:
        link, removed = event.link, event.removed
        before = self.links.get(link.index)
        # It tells of the settings as well, as they are since what was told of them before.
        self.stale_links.discard(link.index)
        self._speaks_of(link)
        if before is None or removed or before.name != link.name:
            self._renamed(link, before)
        if before is not None and self._by_name.get(before.name) == link.index:
            del self._by_name[before.name]
            if before.name != link.name:
                self._speaks_of(before)
        if removed:
            self.links.pop(link.index, None)
            self.suspects.discard(link.index)
        else:
            self.links[link.index] = link
            self._by_name[link.name] = link.index
        # Of a link that is new here, routes may have been told already.
        if before is None and not (removed or event.fell):
            return
        if not link.name.startswith(self.prefixes):
            self.stale_routes = True
        elif removed or not link.up:
            self._drop_routes_of(link.index, own_changes)
        else:
            self.suspects.add(link.index)

    def _drop_routes_of(self, index: int, own_changes: dict[RouteKey, Route | None]) -> None:
        for table in (self.own, self.foreign):
            for key in [key for key, route in table.items() if route[1].oif == index]:
                if table is self.foreign and self._is_base(table[key]):
                    self._base_routes_differ()
                del table[key]
                if table is self.own:
                    own_changes[key] = None

    def _doubt(
        self, route: Route, removed: bool, own_changes: dict[RouteKey, Route | None]
    ) -> None:
        """Told of a route that we wrote, when it cannot be said which came first."""
        key = route.key
        known = self.own.get(key) or self.foreign.get(key)
        if known == (None if removed else route) or (removed and known and known != route):
            return
        self.own.pop(key, None)
        own_changes[key] = None
        self.lose_foreign(key)
        self.stale_routes = True

    def _route(
        self, route: Route, removed: bool, own_changes: dict[RouteKey, Route | None]
    ) -> None:
        key = route.key
        if route.protocol == ROUTE_PROTOCOL:
            if removed:
                self.own.pop(key, None)
            else:
                self.own[key] = route
            own_changes[key] = None if removed else route
            # A replaced foreign route of the same key is gone without a word. Was ours removed
            # that had replaced one, the last word is told alone; of IPv6 both may have stood.
            self.stale_routes = self.stale_routes or (removed and key in self.foreign)
            self.lose_foreign(key)
            return
        if removed:
            self.lose_foreign(key)
            if self.own.pop(key, None) is not None:
                # Likewise: it had replaced ours.
                own_changes[key] = None
                self.stale_routes = True
            return
        replaced = self.foreign.get(key)
        self.foreign[key] = route
        if self._foreign_links is not None and route.protocol != PROTOCOL_KERNEL:
            self._foreign_links.add(route.oif)
        if self._is_base(route) or (replaced is not None and self._is_base(replaced)):
            self._base_routes_differ()
        if self.own.pop(key, None) is not None:
            own_changes[key] = None
            # Or ours took its place since, of which the monitor does not tell.
            self.stale_routes = True

    def lose_foreign(self, key: RouteKey) -> None:
        """A route of another program is gone; the monitor does not tell what we did ourselves."""
        gone = self.foreign.pop(key, None)
        if gone is not None and self._is_base(gone):
            self._base_routes_differ()

    def _base_routes_differ(self) -> None:
        self._base_routes = None
        self.touched.mark_everything()
