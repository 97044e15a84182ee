"""Links, addresses, routes and neighbours of one namespace, and what the kernel says of them.

Modelled on what Linux 6.18 was seen to do (`player` holds both against each other): IPv4, cables
(veth) whose far end is in a namespace of its own, addresses that are alone in their network.
`tell` hands over what is told, in its order; what the kernel does later by itself (a link's
operational state) goes to `later`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from tests.simulation.kernel import messages
from tests.simulation.kernel.rows import Addr, Link, Neigh, Route

LOCAL, MAIN = 255, 254
KERNEL = 2
UNIVERSE, LINK, HOST = 0, 253, 254
UNICAST, LOCAL_TYPE, BROADCAST, BLACKHOLE = 1, 2, 3, 6
FAILED = 0x20
NEW, GONE = True, False
MTU_LEAST = 68


class Refused(Exception):
    """The kernel does not do that: an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


@dataclass
class Namespace:
    """The tables. `writes` counts changes that anybody made, for whoever waits for quiet."""

    tell: Callable[[str, int, bytes, int], None] = lambda kind, number, body, port: None
    later: Callable[[Callable[[], None]], None] = lambda function: function()
    links: dict[int, Link] = field(default_factory=dict)
    addresses: list[Addr] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    neighbours: dict[tuple[int, IPv4Address], Neigh] = field(default_factory=dict)
    defaults: dict[str, int] = field(default_factory=dict)
    next_index: int = 2
    next_peer: int = 42
    port: int = 0
    writes: int = 0

    def __post_init__(self) -> None:
        self.links[1] = Link(1, "lo", "00:00:00:00:00:00", 65536, kind="", loopback=True, oper=0)

    # -- looking -----------------------------------------------------------------------------------

    def named(self, name: str) -> Link:
        """The link of this name. Raises `Refused`."""
        for link in self.links.values():
            if link.name == name:
                return link
        raise Refused(errno.ENODEV)

    def indexed(self, index: int) -> Link:
        """The link of this index. Raises `Refused`."""
        if index not in self.links:
            raise Refused(errno.ENODEV)
        return self.links[index]

    def lookup(self, address: IPv4Address, scope: int = UNIVERSE) -> Route | None:
        """The route a packet of ours to this address takes: the local table first.

        `scope`: of the routes that reach no further than this.
        """
        for table in (LOCAL, MAIN):
            fitting = [
                r for r in self.routes if r.table == table and r.scope >= scope and address in r.dst
            ]
            if fitting:
                return min(fitting, key=lambda r: (-r.dst.prefixlen, r.metric))
        return None

    # -- links -------------------------------------------------------------------------------------

    def add_cable(self, name: str, mac: str, mtu: int, *, up: bool) -> Link:
        """A veth pair, the far end in another namespace."""
        if any(link.name == name for link in self.links.values()):
            raise Refused(errno.EEXIST)
        link = Link(self.next_index, name, mac, mtu, conf=dict(self.defaults), up=up)
        link.peer_index = self.next_peer
        self.next_index += 1
        self.next_peer += 1
        self.links[link.index] = link
        self._link(link)
        return link

    def delete_link(self, link: Link) -> None:
        """A link goes, with its addresses, routes and neighbours."""
        link.leaving = True
        was_up, link.up, link.peer_up, link.peer_index = link.up, False, False, 0
        link.oper = 2
        if was_up:
            self._link(link)
            self._drop_neighbours(link.index)
            self._drop_routes(link.index, everything=False)
        for each in [a for a in self.addresses if a.index == link.index]:
            self._remove_address(each)
        self._drop_routes(link.index, everything=True)
        self._drop_neighbours(link.index)
        del self.links[link.index]
        self._link(link, removed=True)

    def set_flags(self, link: Link, *, up: bool) -> None:
        """Up or down, as the administrator wishes."""
        if link.up == up:
            return
        link.up = up
        if up:
            changed = self._carrier(link)
            self._link(link)
            for address in [a for a in self.addresses if a.index == link.index]:
                self._add_prefix(address)
        else:
            self._drop_routes(link.index, everything=False)
            changed = self._carrier(link)
            self._link(link)
            self._drop_neighbours(link.index)
        if changed:
            self.later(lambda: self._watch(link))

    def set_peer(self, link: Link, *, up: bool) -> None:
        """The far end goes up or down."""
        if link.peer_up != up:
            link.peer_up = up
            if link.up and self._carrier(link):
                self.later(lambda: self._watch(link))

    def _carrier(self, link: Link) -> bool:
        """Whether the carrier came or went just now."""
        carrier = link.up and link.peer_up
        if link.loopback or carrier == link.had_carrier:
            return False
        link.had_carrier = carrier
        return True

    def _watch(self, link: Link) -> None:
        """What the kernel's own worker makes of a carrier that came or went."""
        if self.links.get(link.index) is not link or link.leaving:
            return
        link.oper = 6 if link.had_carrier else 2
        if link.up:
            self._link(link)

    def set_mac(self, link: Link, mac: str) -> None:
        """A hardware address is written: neighbours on this link are forgotten, whatever it was."""
        link.mac = mac
        self._link(link)
        self._drop_neighbours(link.index)

    def set_mtu(self, link: Link, mtu: int) -> None:
        """Another MTU."""
        if mtu < MTU_LEAST:
            raise Refused(errno.EINVAL)
        link.mtu = mtu
        self._link(link)

    def set_conf(self, link: Link, values: dict[str, int]) -> None:
        """IPv4 settings."""
        link.conf.update(values)
        if link.up:
            self._link(link)

    def _link(self, link: Link, *, removed: bool = False) -> None:
        self.writes += 1
        self.tell("link", 17 if removed else 16, messages.link(link, removed), 0)

    # -- addresses ---------------------------------------------------------------------------------

    def add_address(self, index: int, interface: IPv4Interface, *, replace: bool = False) -> None:
        """An address, and the routes that come with it."""
        self.indexed(index)
        known = [a for a in self.addresses if a.index == index and a.interface == interface]
        if known:
            if replace:
                self._address(known[0])
                return
            raise Refused(errno.EEXIST)
        address = Addr(index, interface, self.links[index].name)
        self.addresses.append(address)
        self._address(address)
        self._local_route(address)
        if self.links[index].up:
            self._add_prefix(address)

    def remove_address(self, index: int, interface: IPv4Interface) -> None:
        """An address goes, and its routes."""
        self.indexed(index)
        for each in self.addresses:
            if each.index == index and each.interface == interface:
                self._remove_address(each)
                return
        raise Refused(errno.EADDRNOTAVAIL)

    def _remove_address(self, address: Addr) -> None:
        self.addresses.remove(address)
        self._address(address, removed=True)
        for route in self._prefix_routes(address):
            if route in self.routes:
                self._remove_route(route)
        local = self._local(address)
        if local in self.routes:
            self._remove_route(local)
        gone = address.interface.ip
        if all(each.interface.ip != gone for each in self.addresses):
            self.routes = [r for r in self.routes if r.prefsrc != gone]
        if all(each.index != address.index for each in self.addresses):
            # Without its last address a link does not take part in IP.
            self._drop_routes(address.index, everything=True)
            self._drop_neighbours(address.index)

    def _address(self, address: Addr, *, removed: bool = False) -> None:
        self.writes += 1
        self.tell("address", 21 if removed else 20, messages.address(address), 0)

    def _local(self, address: Addr) -> Route:
        ip = address.interface.ip
        return Route(IPv4Network(ip), address.index, None, LOCAL_TYPE, LOCAL, KERNEL, HOST, 0, ip)

    def _local_route(self, address: Addr) -> None:
        self._insert(self._local(address), 0)

    def _prefix_routes(self, address: Addr) -> list[Route]:
        network, ip, index = address.interface.network, address.interface.ip, address.index
        if network.prefixlen > 30:
            return []
        last = IPv4Network(network.broadcast_address)
        return [
            Route(network, index, None, UNICAST, MAIN, KERNEL, LINK, 0, ip),
            Route(last, index, None, BROADCAST, LOCAL, KERNEL, LINK, 0, ip),
        ]

    def _add_prefix(self, address: Addr) -> None:
        for route in self._prefix_routes(address):
            self._insert(route, 0)

    # -- routes ------------------------------------------------------------------------------------

    def put_route(self, route: Route, *, create: bool, replace: bool, exclusive: bool) -> None:
        """A route is written; `port`: by which socket."""
        route = self._resolved(route)
        # Where some have one prefix and metric, the youngest stands first and is the one meant.
        alike = [r for r in self.routes if r.key == route.key]
        if alike and exclusive:
            raise Refused(errno.EEXIST)
        if alike and replace:
            first = alike[0]
            if route in alike:
                # Nothing to be done, and nothing is told; unless another would go for it.
                if route != first:
                    raise Refused(errno.EEXIST)
                return
            self.routes[self.routes.index(first)] = route
            self._route(route)
            return
        if not alike and not create:
            raise Refused(errno.ENOENT)
        self._insert(route, self.port)

    def _resolved(self, route: Route) -> Route:
        """The route as the kernel understands it. Raises `Refused`."""
        if route.type == BLACKHOLE:
            return route
        if route.gateway is None:
            link = self.indexed(route.oif)
            if not link.up:
                raise Refused(errno.ENETDOWN)
            return route
        way = self.lookup(route.gateway, LINK)
        if way is None:
            raise Refused(errno.ENETUNREACH)
        if way.type in (LOCAL_TYPE, BROADCAST):
            raise Refused(errno.EINVAL)
        if way.gateway is not None or (route.oif and way.oif != route.oif):
            raise Refused(errno.ENETUNREACH)
        if not self.links[way.oif].up:
            raise Refused(errno.ENETDOWN)
        return route.by(way.oif)

    def delete_route(self, wanted: Route) -> None:
        """The first route of this prefix that is of this protocol and metric (0: of any)."""
        for route in sorted(self.routes, key=lambda r: r.metric):
            if (
                (route.table, route.dst) == (wanted.table, wanted.dst)
                and wanted.metric in (0, route.metric)
                and wanted.protocol in (0, route.protocol)
            ):
                self._remove_route(route)
                return
        raise Refused(errno.ESRCH)

    def _insert(self, route: Route, port: int) -> None:
        self.routes.append(route)
        self._route(route)

    def _remove_route(self, route: Route) -> None:
        self.routes.remove(route)
        self._route(route, removed=True)

    def _route(self, route: Route, *, removed: bool = False) -> None:
        self.writes += 1
        self.tell("route", 25 if removed else 24, messages.route(route), self.port)

    def _drop_routes(self, index: int, *, everything: bool) -> None:
        """In silence, as the kernel does when a link goes down."""
        self.routes = [
            r for r in self.routes if r.oif != index or (r.scope == HOST and not everything)
        ]

    # -- neighbours --------------------------------------------------------------------------------

    def put_neighbour(self, index: int, address: IPv4Address, mac: str, state: int) -> None:
        """An entry, whatever was there."""
        self.indexed(index)
        entry = Neigh(index, address, mac, state)
        known = self.neighbours.get((index, address))
        self.neighbours[index, address] = entry
        if known != entry:
            self._neighbour(entry)

    def delete_neighbour(self, index: int, address: IPv4Address) -> None:
        """An entry goes."""
        self.indexed(index)
        entry = self.neighbours.pop((index, address), None)
        if entry is None:
            raise Refused(errno.ENOENT)
        # It fails first, and is taken away then.
        entry = Neigh(index, address, "", FAILED)
        self._neighbour(entry)
        self._neighbour(entry, removed=True)

    def _drop_neighbours(self, index: int) -> None:
        # The youngest first.
        for key in [key for key in reversed(self.neighbours) if key[0] == index]:
            self._neighbour(self.neighbours.pop(key), removed=True)

    def _neighbour(self, entry: Neigh, *, removed: bool = False) -> None:
        self.writes += 1
        self.tell("neighbour", 29 if removed else 28, messages.neighbour(entry), 0)
