"""What the node has besides packets: routes of both ways, neighbours, interfaces, connections.

Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from libcalico.local.packet_trace import (
    DESTINATION,
    NODE,
    SOURCE,
    Connection,
    Facts,
    Link,
    Question,
    Route,
)
from linux import links, neighbours, sysctl
from linux.errors import KernelError
from linux.link_values import Link as KernelLink
from linux.lookups import connections
from linux.lookups.forwarding import Decision, decide
from linux.netlink.socket import Socket
from linux.rtnl import IPAddress
from node.trace.announced import announced
from node.trace.heads import TCP, UDP
from node.trace.pods import PodNamespace

_NET = Path("/proc/thread-self/net")
_TELLING = frozenset({
    "ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPBacklogDrop", "TCPTimeWaitOverflow",
    "TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure", "PAWSPassive", "InCsumErrors",
    "TCPMemoryPressures", "RcvbufErrors", "NoPorts", "TCPRcvQDrop",
})  # fmt: skip
_NUD = {1: "incomplete", 2: "reachable", 4: "stale", 8: "delay", 16: "probe", 32: "failed",
        64: "noarp", 128: "permanent"}  # fmt: skip
_LISTEN, _BOUND = "0A", "07"
FROM_SPEAKERS = frozenset({109, 12})
"""Protocol numbers of felix's routes and of BIRD's; another route was announced by no peer."""


def counters() -> dict[str, int]:
    """Counts of this namespace's kernel that tell of lost segments and connections."""
    counts: dict[str, int] = {}
    for name in ("netstat", "snmp"):
        with suppress(OSError, ValueError):
            lines = (_NET / name).read_text().splitlines()
            for head, values in zip(lines[::2], lines[1::2], strict=True):
                pairs = zip(head.split()[1:], values.split()[1:], strict=True)
                kind = head.partition(":")[0]
                counts |= {f"{kind}.{k}": int(v) for k, v in pairs if k in _TELLING}
    return counts


def listening(question: Question) -> bool | None:
    """Whether a socket of this namespace listens on the port of the question."""
    name = {TCP: "tcp", UDP: "udp"}.get(question.protocol)
    if name is None or not question.port:
        return None
    listening_state = _LISTEN if question.protocol == TCP else _BOUND
    for file in (name, f"{name}6"):
        with suppress(OSError):
            for line in (_NET / file).read_text().splitlines()[1:]:
                _, local, _, state = line.split()[:4]
                if state == listening_state and int(local.rpartition(":")[2], 16) == question.port:
                    return True
    return False


def gather(
    question: Question,
    source: PodNamespace | None,
    destination: PodNamespace | None,
    before: dict[str, int],
    targets: tuple[str, str],
) -> Facts:
    """All of it. What cannot be read is named in `missing`.

    `targets`: where the packet and its answer were last seen to go: destinations may be translated.
    """
    missing: list[str] = []
    with Socket() as sock:
        every = links.dump(sock)
        forward = _way(sock, question, every, targets, missing, forward=True)
        back = _way(sock, question, every, targets, missing, forward=False)
    forwarding = _forwarding6() if ":" in question.source else None
    interfaces = [_link(NODE, each, forwarding) for each in every if _interesting(each, question)]
    moved: dict[str, int] = {}
    heard: bool | None = None
    for place, pod in ((SOURCE, source), (DESTINATION, destination)):
        if pod is None:
            continue
        with suppress(KernelError):
            interfaces += [_link(place, each) for each in pod.run(_links) if not each.loopback]
    if destination is not None:
        after = destination.run(counters)
        moved = {k: v - before.get(k, 0) for k, v in after.items() if v > before.get(k, 0)}
        heard = destination.run(lambda: listening(question))
    return Facts(
        forward,
        back,
        interfaces,
        list(_connections(question, missing)),
        moved,
        _conntrack(),
        heard,
        missing,
    )


def _links() -> list[KernelLink]:
    with Socket() as sock:
        return links.dump(sock)


def _interesting(link: KernelLink, question: Question) -> bool:
    if link.name.startswith("cali"):
        return link.name in (question.source_interface, question.destination_interface)
    return not link.loopback


def _forwarding6() -> int | None:
    """Whether IPv6 is forwarded: one setting for all interfaces, other than in IPv4."""
    try:
        return int(sysctl.get("net/ipv6/conf/all/forwarding"))
    except KernelError:
        return None


def _link(place: str, link: KernelLink, forwarding: int | None = None) -> Link:
    """An interface as it is told; `forwarding` where it is not the interface's own (IPv4's)."""
    return Link(
        place,
        link.name,
        link.up,
        link.carrier,
        link.mtu,
        link.mac,
        link.inet("forwarding") or 0 if forwarding is None else forwarding,
        link.inet("rp_filter") or 0,
    )


def _way(
    sock: Socket,
    question: Question,
    every: list[KernelLink],
    targets: tuple[str, str],
    missing: list[str],
    *,
    forward: bool,
) -> Route | None:
    """How the node sends a packet on, as one that comes in by the interface where it does."""
    by_name = links.by_name(every)
    sender = question.source_interface if forward else question.destination_interface
    source = ip_address(question.source if forward else question.destination)
    target = ip_address(targets[0] if forward else targets[1])
    try:
        iif = by_name[sender].index if sender in by_name else 0
        if not iif:
            # It comes from elsewhere: by the interface that leads back there, as seen from here.
            back = decide(sock, None, source)
            own = back.route is not None and back.route.type == "local"
            iif = 0 if back.error or own else back.oif
        arriving = decide(sock, source, target, iif=iif) if iif else decide(sock, None, target)
    except KernelError as error:
        missing.append(f"the route to {target}: {error}")
        return None
    return _route(sock, target, arriving, every, missing)


def _route(
    sock: Socket,
    target: IPAddress,
    decision: Decision,
    every: list[KernelLink],
    missing: list[str],
) -> Route:
    if decision.error or decision.route is None:
        return Route(str(target), error=errno.errorcode.get(decision.error, str(decision.error)))
    names = {link.index: link.name for link in every}
    route, gateway = decision.route, decision.gateway
    state, mac = "", ""
    for entry in neighbours.dump(sock, index=decision.oif) if decision.oif else ():
        if entry.address == (gateway or target):
            state, mac = _NUD.get(entry.state, str(entry.state)), entry.mac
    peer, since = "", ""
    if gateway is not None and route.protocol in FROM_SPEAKERS:
        try:
            peer, since = announced(str(target))
        except OSError as error:
            missing.append(
                f"which peer announced the route: the BGP speaker does not answer: {error}"
            )
    return Route(
        str(target),
        str(route.dst),
        route.type,
        "" if gateway is None else str(gateway),
        names.get(decision.oif, ""),
        route.protocol,
        route.shape.mtu,
        "",
        state,
        mac,
        peer,
        since,
    )


def _connections(question: Question, missing: list[str]) -> Iterator[Connection]:
    source = ip_address(question.source)
    try:
        for each in connections.of_address(source, question.protocol):
            one = each.original
            if question.port and question.port not in (one.source_port, one.destination_port):
                continue
            ends = (str(one.source), str(one.destination))
            if question.destination in ends:
                yield Connection(
                    _tuple(each.original), _tuple(each.reply), each.state, each.replied
                )
    except KernelError as error:
        missing.append(f"connections: {error}")


def _tuple(one: connections.Tuple) -> str:
    def end(address: IPAddress, port: int) -> str:
        text = f"[{address}]" if address.version == 6 and port else str(address)
        return f"{text}:{port}" if port else text

    source = end(one.source, one.source_port)
    return f"{source} > {end(one.destination, one.destination_port)}"


def _conntrack() -> tuple[int, int] | None:
    try:
        count = int(sysctl.get("net/netfilter/nf_conntrack_count"))
        return count, int(sysctl.get("net/netfilter/nf_conntrack_max"))
    except KernelError:
        return None


def boot_id() -> str:
    """What names this start of this machine."""
    try:
        return sysctl.get("kernel/random/boot_id")
    except KernelError:
        return f"unknown-{os.getpid()}"
