"""Causes that the kernel names when it drops a packet, and what routes and settings add. Pure.

Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from calicoctl.tracing.cause import Cause, links_at
from calicoctl.tracing.evidence import Evidence
from calicoctl.tracing.reasons import FUNCTIONS, REASONS
from calicoctl.tracing.story import REFUSALS, Stage, Story, route_text
from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    SOURCE,
    Head,
    Route,
)

NEARLY = 0.98
"""Of a table of connections: entries come and go between the drop and the look."""


TTL_FIX = "see ip_default_ttl in the pod; traceroute shows a loop"
MTU_FIX = "give pods and links one MTU (docs/felix-configuration.md)"


def dropped(story: Story, way: tuple[Stage, ...], owner: Callable[[str], str]) -> Iterator[Cause]:
    """What the kernel says of a drop, with routes and settings beside it."""
    drop = next((stage for stage in way if stage.what == DROPPED), None)
    if drop is None or drop.packet is None:
        return
    packet = drop.packet
    node = story.traced.of(drop.node)
    where = f"on {drop.node}"
    if packet.reason in ("NETFILTER_DROP", "NETFILTER"):
        if node is not None and _full(node):
            yield _conntrack_full(node)
        counted = [] if node is None else [r for r in node.rules if r.kind == "counted"]
        said = [f"{r.table} {r.chain}:{r.number}" for r in counted if r.verdict == "drop"]
        text = f"netfilter drops it {where}"
        if said:
            text += f"; rules that dropped something meanwhile: {', '.join(said)}"
        yield Cause("rule", text, drop.node)
    yield from _by_facts(story, drop, node, owner)
    if packet.reason in REASONS:
        name, text, fix = REASONS[packet.reason]
        yield Cause(
            name, f"{text} ({packet.reason}, {_at(packet.interface)}{where})", drop.node, fix
        )
    if packet.function in FUNCTIONS:
        name, text, fix = FUNCTIONS[packet.function]
        yield Cause(name, f"{text} ({packet.function}, {_at(packet.interface)}{where})", drop.node,
                    fix)  # fmt: skip
    yield Cause("kernel-drop", f"{drop.text} {where}", drop.node)


def _full(node: Evidence) -> bool:
    table = node.facts.conntrack
    return table is not None and table[0] >= NEARLY * table[1]


def _conntrack_full(node: Evidence) -> Cause:
    assert node.facts.conntrack is not None
    count, most = node.facts.conntrack
    text = f"the table of connections of {node.node} is full ({count} of {most})"
    fix = "raise net.netfilter.nf_conntrack_max, or find what opens so many"
    return Cause("conntrack-full", text, node.node, fix)


def _at(interface: str) -> str:
    return f"{interface} " if interface else ""


def _by_facts(
    story: Story, drop: Stage, node: Evidence | None, owner: Callable[[str], str]
) -> Iterator[Cause]:
    """What routes and settings say of a drop on the node, before the kernel's bare word."""
    packet = drop.packet
    if node is None or packet is None or packet.place not in (NODE, ""):
        return
    forward = packet.head.source == story.traced.question.source and packet.head.inner is None
    route = node.facts.forward if forward else node.facts.back
    if packet.head.ttl > 1:
        yield from forwarding_off(node, packet.interface)
    if packet.reason == "IP_RPFILTER" or (route is not None and route.error == "EXDEV"):
        text = (
            f"the reverse path filter of {packet.interface or 'an interface'} on {node.node} drops"
            f" it: the way back to {packet.head.source} does not lead there"
        )
        yield Cause("reverse-path", text, node.node, "make both ways alike, or loosen rp_filter")
    if route is not None and route.error in ("EINVAL", "EACCES", "ENETUNREACH", "EHOSTUNREACH"):
        if forward and not owner(packet.head.destination):
            yield ownerless(story, packet.head.destination)
        yield from by_route(story, node, route)
    if packet.head.ttl <= 1 and packet.place == NODE:
        text = (
            f"the packet's time to live ends at node {node.node}: too few hops allowed, or a loop"
        )
        yield Cause("ttl", text, node.node, TTL_FIX)
    if packet.reason == "OTHERHOST":
        yield from _other_host(story, node, forward=forward)
    if route is not None and packet.reason.startswith("NEIGH"):
        yield from dead_pod(node, route, forward=forward)
        yield next_hop(node.node, route)
    if packet.reason == "PKT_TOO_BIG" and route is not None:
        yield _too_big(node, route, packet.head)


def forwarding_off(node: Evidence, interface: str) -> Iterator[Cause]:
    """Forwarding that is off where a packet came in. IPv6 has one setting for all interfaces."""
    inbound = next((link for link in links_at(node, NODE) if link.name == interface), None)
    if inbound is None or inbound.forwarding:
        return
    setting, fix = f"net.ipv4.conf.{inbound.name}.forwarding", "net.ipv4.ip_forward"
    if ":" in node.ready.question.source:
        setting = fix = "net.ipv6.conf.all.forwarding"
    text = f"{node.node} does not forward: {setting} is 0"
    yield Cause("forwarding-off", text, node.node, f"sysctl -w {fix}=1")


def _other_host(story: Story, node: Evidence, *, forward: bool) -> Iterator[Cause]:
    """The sender of a frame that is for no interface here: the node before, by its neighbour."""
    order = story.traced.nodes if forward else story.traced.nodes[::-1]
    before = [each for each in order if each is not node]
    route = next((r for each in before if (r := _route_of(each, forward)) is not None), None)
    if route is not None and route.neighbour_mac and route.neighbour_mac not in {
        link.mac for link in links_at(node, NODE)
    }:  # fmt: skip
        yield wrong_mac(before[0], node, route)


def _route_of(node: Evidence, forward: bool) -> Route | None:
    return node.facts.forward if forward else node.facts.back


def wrong_mac(node: Evidence, other: Evidence, route: Route) -> Cause:
    """A neighbour entry with a MAC that the neighbour has not."""
    hop = route.gateway or route.destination
    text = (
        f"{node.node} sends to {route.neighbour_mac} for {hop}, and no interface of"
        f" {other.node} has that MAC ({route.neighbour} neighbour entry)"
    )
    fix = f"ip neigh del {hop} dev {route.interface}"
    return Cause("wrong-neighbour", text, node.node, fix)


def _too_big(node: Evidence, route: Route, head: Head) -> Cause:
    mtu = next((k.mtu for k in links_at(node, NODE) if k.name == route.interface), 0)
    mtu = min(filter(None, (mtu, route.mtu)), default=0)
    text = f"{node.node} has no room for {head.length} bytes: {route.interface} takes {mtu}"
    return Cause("mtu", text, node.node, MTU_FIX)


def by_route(story: Story, node: Evidence, route: Route) -> Iterator[Cause]:
    """A route that leads nowhere, and why."""
    down = [link.name for link in links_at(node, NODE) if not link.up]
    mine = [link for link in down if link.startswith("cali") or link.startswith("eth")]
    if mine:
        text = f"interface {mine[0]} of {node.node} is down, and its routes are gone"
        yield Cause("interface-down", text, node.node, f"ip link set {mine[0]} up")
    name = {"EINVAL": "blackhole", "EACCES": "prohibit-route"}.get(route.error, "no-route")
    text = f"{node.node} has no way to {route.destination}: {REFUSALS[route.error]}"
    yield Cause(name, text, node.node, f"ip route get {route.destination} on {node.node}")


def next_hop(node: str, route: Route) -> Cause:
    """A next hop that does not answer."""
    hop = route.gateway or route.destination
    text = f"no host answers for {hop} on {route.interface or 'the link'} of {node}"
    text += f" (neighbour {route.neighbour or 'unknown'}); {route_text(route)}"
    return Cause("next-hop", text, node, "start that router or node, or correct the route")


def dead_pod(node: Evidence, route: Route, *, forward: bool) -> Iterator[Cause]:
    """A pod of this node that does not answer for its address, because its link is down."""
    asked = node.ready.question
    own = asked.destination_interface if forward else asked.source_interface
    if own and route.interface == own:
        yield from down(node, DESTINATION if forward else SOURCE, own)


def down(node: Evidence, place: str, interface: str) -> Iterator[Cause]:
    """The link of a pod that is down."""
    for link in links_at(node, place):
        if not link.up:
            text = (
                f"{link.name} in the pod behind {interface} is down: the pod is dead or half made"
            )
            yield Cause("pod-down", text, node.node, "restart the pod")


def ownerless(story: Story, address: str) -> Cause:
    """An address of a pool that none has, asked for or by a translation."""
    asked = story.traced.question.destination
    if address != asked:
        text = f"{asked} is translated to {address}, which no pod and no node has: a dead endpoint"
        return Cause("dead-endpoint", text, "", "see the endpoints of the Service, and its proxy")
    return Cause(
        "no-owner", f"no pod and no node has the address {address}", "", "see its DNS or IPAM"
    )
