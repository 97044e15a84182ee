"""Plays a sequence of operations through the real code of `linux`, and tells what the kernel did.

The same player runs against the kernel of a fresh network namespace and against the simulated one:
what it tells (error codes, events in their order, dumps) must be equal (`conformance`).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from random import Random
from typing import Any

from linux import addresses, links, neighbours, routes
from linux.errors import KernelError
from linux.ipset import IPSets
from linux.monitor import ADDRESSES, LINKS, NEIGHBOURS, ROUTES
from linux.monitor.events import LinkChanged, RouteChanged, decode
from linux.netlink.answers import split
from linux.netlink.socket import Socket
from linux.routes import NextHop, Route
from tests.support.patience import HANG

Operation = tuple[Any, ...]
HOST_LINKS = ("eth0", "eth1")
PODS = ("cali1", "cali2", "cali3")
SETS = ("cali40a", "cali40b")


def operations(chance: Random, count: int) -> list[Operation]:
    """A random sequence, of which many are refused."""
    found: list[Operation] = [
        ("veth", "eth0", True),
        ("peer up", "eth0"),
        ("address", "eth0", "10.9.0.1/24"),
    ]
    for number in range(count):
        found.append(_one(chance, number))
    return found


def _one(chance: Random, number: int) -> Operation:
    pick, name = chance.choice, chance.choice((*PODS, *PODS, *HOST_LINKS))
    networks = ("10.1.0.1/32", "10.1.0.2/32", "10.2.0.0/26", "10.3.0.0/16", "10.9.0.64/26")
    owned = ("10.9.0.1/24", "10.8.0.1/16", "10.1.0.9/32")
    kind = pick(
        ("veth", "veth", "veth", "veth", "delete", "up", "up", "up", "down", "peer up", "peer down",
         "address", "address", "address gone", "direct", "direct", "direct", "via", "via",
         "blackhole", "route gone", "route gone", "neighbour", "neighbour gone", "conf", "mac",
         "mtu", "lookup", "set", "set", "set gone", "members", "members", "members gone", "swap")
    )  # fmt: skip
    match kind:
        case "veth":
            return ("veth", name, chance.random() < 0.7)
        case "delete" | "up" | "down":
            return (kind, name)
        case "peer up" | "peer down":
            return (kind, name)
        case "address" | "address gone":
            return (kind, name, pick(owned))
        case "direct":
            way = pick(("add", "replace", "replace"))
            return (kind, way, pick(networks), name, pick((109, 109, 3, 80)), pick((1024, 1024, 0)))
        case "via":
            gateway = pick(("10.9.0.77", "10.9.0.78", "10.8.7.7", "172.16.0.1"))
            return (kind, pick(("add", "replace")), pick(networks), gateway, 109, 1024)
        case "blackhole":
            return (kind, pick(networks), 109, 1024)
        case "route gone":
            return (kind, pick(networks), pick((109, 109, 3, 80)), pick((1024, 1024, 0)))
        case "neighbour" | "neighbour gone":
            return (kind, name, pick(("10.1.0.1", "10.1.0.2")), f"02:00:00:00:00:0{number % 3}")
        case "conf":
            return (kind, name, pick(("proxy_arp", "forwarding", "rp_filter")), pick((0, 1)))
        case "mac":
            return (kind, name, pick(("ee:ee:ee:ee:ee:ee", "02:00:00:00:01:01")))
        case "mtu":
            return (kind, name, pick((1400, 1450, 60)))
        case "lookup":
            return (kind, pick(("10.1.0.1", "10.1.0.2", "10.2.0.5", "10.9.0.70", "8.8.8.8")))
        case "set":
            return (kind, pick(SETS), pick(("hash:net", "hash:ip,port")), pick((1024, 4)))
        case "members" | "members gone":
            nets = ("10.1.0.1", "10.2.0.0/26", "10.1.0.1,tcp:80", "10.7.0.0/16", "10.1.0.3")
            return (kind, pick(SETS), tuple(chance.sample(nets, chance.randint(1, 3))))
        case "swap":
            return (kind, *SETS)
    return (kind, pick(SETS))


@dataclass
class Player:
    """`pods`: a descriptor of the namespace in which the other ends of cables live; `inside`
    makes a socket there.
    """

    pods: int
    inside: Any
    waits: bool = False
    far: str = "p"

    def __post_init__(self) -> None:
        self.sock = Socket()
        self.pod_sock = self.inside()
        self.sets = IPSets()
        self.told = Socket(groups=(*LINKS, *ADDRESSES, *ROUTES, *NEIGHBOURS))
        self.told.setblocking(False)
        self._last: dict[int, Any] = {}

    def close(self) -> None:
        """Give the sockets back."""
        for each in (self.sock, self.pod_sock, self.sets, self.told):
            each.close()

    def play(self, steps: list[Operation]) -> Iterator[tuple[Operation, Any]]:
        """Each operation with what came of it; at the end all tables."""
        for step in steps:
            outcome = self._play(step)
            if self.waits:
                self._settle(step)
            yield step, (outcome, self.events())
        yield ("dump",), self.dumps()

    def events(self) -> list[Any]:
        """What the kernel told since the last time."""
        found: list[Any] = []
        while True:
            try:
                data = self.told.receive()
            except BlockingIOError:
                return found
            for kind, _, _, body in split(data):
                decoded = decode(kind, body)
                if decoded is not None:
                    self._hear(_plain(decoded[1]), found)

    def _hear(self, event: Any, found: list[Any]) -> None:
        if event[0] == "link":
            # Told again for its operational state alone.
            if self._last.get(event[1]) == event:
                return
            self._last[event[1]] = event
        found.append(event)

    def dumps(self) -> dict[str, Any]:
        """The tables, in the kernel's order."""
        held = {}
        for name in sorted(self.sets.names()):
            info = self.sets.info(name)
            assert info is not None
            shown = (info.type, info.family, info.maxelem, info.references, info.entries)
            held[name] = (shown, sorted(self.sets.members(name)))
        return {
            "links": [_link(link) for link in links.dump(self.sock)],
            "addresses": [_plain(each) for each in addresses.dump(self.sock)],
            "routes": [repr(route) for route in routes.dump(self.sock)],
            "neighbours": sorted(repr(each) for each in neighbours.dump(self.sock)),
            "sets": held,
        }

    def _settle(self, step: Operation) -> None:
        """Until the kernel's worker has seen the carrier come or go."""
        if step[0] not in ("up", "down", "peer up", "peer down"):
            return
        until = time.monotonic() + HANG
        while time.monotonic() < until:
            link = links.get(self.sock, step[1])
            if link is None or not link.up or link.operstate == (6 if link.carrier else 2):
                return
            time.sleep(0.001)

    def _index(self, name: str) -> int:
        link = links.get(self.sock, name)
        return link.index if link is not None else 9999

    def _play(self, step: Operation) -> Any:
        try:
            return self._act(step)
        except KernelError as error:
            return errno.errorcode.get(error.errno, error.errno)

    def _act(self, step: Operation) -> Any:
        sock = self.sock
        match step:
            case ("veth", name, up):
                made = links.create_veth(
                    name, mac="02:00:00:00:00:01", mtu=1500, peer_name=f"{self.far}{name}",
                    peer_mac="02:00:00:00:00:02", peer_netns_fd=self.pods, host_up=up,
                )  # fmt: skip
                return links.made(sock, made, name).index
            case ("delete", name):
                return self._send(links.delete(name))
            case ("up", name):
                return self._send(links.set_up(name))
            case ("down", name):
                return self._send(links.set_down(name))
            case ("peer up", name):
                return self.pod_sock.transact([links.set_up(f"{self.far}{name}")])[0].errno
            case ("peer down", name):
                return self.pod_sock.transact([links.set_down(f"{self.far}{name}")])[0].errno
            case ("address", name, text):
                return self._send(addresses.add(self._index(name), ip_interface(text)))
            case ("address gone", name, text):
                return self._send(addresses.delete(self._index(name), ip_interface(text)))
            case ("direct", way, text, name, protocol, metric):
                hops = (NextHop(None, self._index(name)),)
                route = Route(ip_network(text), hops, protocol=protocol, metric=metric)
                return self._send((routes.add if way == "add" else routes.replace)(route))
            case ("via", way, text, gateway, protocol, metric):
                hops = (NextHop(ip_address(gateway), 0),)
                route = Route(ip_network(text), hops, protocol=protocol, metric=metric)
                return self._send((routes.add if way == "add" else routes.replace)(route))
            case ("blackhole", text, protocol, metric):
                route = Route(ip_network(text), (), "blackhole", protocol=protocol, metric=metric)
                return self._send(routes.replace(route))
            case ("route gone", text, protocol, metric):
                route = Route(ip_network(text), (), "blackhole", protocol=protocol, metric=metric)
                return self._send(routes.delete(route))
            case ("neighbour", name, address, mac):
                message = neighbours.replace(self._index(name), ip_address(address), mac)
                return self._send(message)
            case ("neighbour gone", name, address, _):
                return self._send(neighbours.delete(self._index(name), ip_address(address)))
            case ("conf", name, setting, value):
                return self._send(links.set_inet_conf(self._index(name), {setting: value}))
            case ("mac", name, mac):
                return self._send(links.set_mac(name, mac))
            case ("mtu", name, mtu):
                return self._send(links.set_mtu(name, mtu))
            case ("lookup", address):
                return repr(routes.lookup(sock, ip_address(address)))
            case ("set", name, kind, size):
                return self.sets.create(name, kind, 4, size)
            case ("set gone", name):
                return self.sets.destroy(name)
            case ("members", name, members):
                return self.sets.add(name, members)
            case ("members gone", name, members):
                return self.sets.delete(name, members)
            case ("swap", one, other):
                return self.sets.swap(one, other)
        raise AssertionError(step)

    def _send(self, message: bytes) -> Any:
        code = self.sock.transact([message])[0].errno
        return errno.errorcode.get(code, code)


def _link(link: links.Link) -> Any:
    # The operational state is told later, by a worker that takes up to a second.
    conf = {name: link.inet(name) for name in ("forwarding", "proxy_arp", "rp_filter")}
    return (
        link.index, link.name, link.mac, link.mtu, link.up, link.carrier, link.kind,
        bool(link.peer_index), tuple(conf.items()),
    )  # fmt: skip


def _plain(event: Any) -> Any:
    match event:
        case LinkChanged(link, removed):
            return ("link", *_link(link), removed)
        case RouteChanged(route, removed):
            return ("route", repr(route), removed)
        case addresses.Address():
            return repr(event)
    return repr(event)
