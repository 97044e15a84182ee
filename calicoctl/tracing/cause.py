"""Why a traced connection failed: one cause, named by what the kernels themselves said. Pure.

In the order of certainty: a rule that dropped the packet, the kernel's reason, an error that came
back, a place where the packet was seen last, and what the facts say about that place.
Tested in tests/calicoctl/test_tracing_cause.py and, with planted causes, tests/trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calicoctl.tracing.evidence import Evidence, broken
from calicoctl.tracing.naming import Hit
from calicoctl.tracing.reasons import FUNCTIONS, REASONS
from calicoctl.tracing.story import REFUSALS, Stage, Story, route_text
from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    RECEIVED,
    SENT,
    SOURCE,
    Head,
    Link,
    Route,
)

TCP, UDP = 6, 17
_PROHIBITED = {(3, 9), (3, 10), (3, 13), (1, 1)}


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: `name` for programs, `text` for people, where (`node`), and what to do (`fix`)."""

    name: str
    text: str
    node: str = ""
    fix: str = ""


def cause_of(story: Story, owner: Callable[[str], str] = str) -> Cause:
    """The cause; `ok` where the connection was made.

    `owner` names the pod or node that has an address, an address that lies in no pool by itself,
    and is empty for one of a pool that none has.
    """
    traced = story.traced
    if traced.succeeded:
        return Cause("ok", _well(story))
    if story.packet is None:
        return _nothing_left(story)
    for found in _causes(story, owner):
        return found
    return Cause("unknown", f"the way ends unexplained; last seen: {_last_text(story.forward)}")


def _causes(story: Story, owner: Callable[[str], str]) -> Iterator[Cause]:
    forward_ok = story.packet is not None and story.traced.arrived(story.packet)
    way = story.back if forward_ok and story.answer is not None else story.forward
    if not forward_ok or (story.answer is not None and not broken(story.answer)):
        yield from _ruled(way)
        yield from _dropped(story, way, owner)
    if story.answer is not None and broken(story.answer):
        yield from _refused(story, story.answer, owner)
    if story.back and story.answer is not None and broken(story.answer):
        yield from _ruled(story.forward)
    if not forward_ok:
        yield from _lost(story, story.forward, owner, forward=True)
    elif story.answer is None:
        yield from _unanswered(story, owner)
    elif not story.traced.arrived(story.answer):
        yield from _lost(story, story.back, owner, forward=False)


def _well(story: Story) -> str:
    probe = story.traced.probe
    if probe is None:
        return "the connection was answered"
    return f"{probe.result} within {probe.seconds * 1000:.1f} ms"


def _nothing_left(story: Story) -> Cause:
    probe, node = story.traced.probe, story.traced.source_node
    for link in _links(story.traced.of(node), SOURCE):
        if not link.up:
            text = f"interface {link.name} of the source pod is down: nothing leaves it"
            return Cause("interface-down", text, node, "restart the pod, or set the link up")
    if probe is not None and probe.result in ("unreachable", "failed"):
        text = f"the source pod's own kernel refuses to send: {probe.detail}"
        return Cause("source-refuses", text, node, "see routes and links inside the pod")
    if probe is None:
        return Cause("no-attempt", "no attempt was seen")
    return Cause("not-seen", f"no packet of the attempt was seen ({probe.result})", node)


# -- rules ----------------------------------------------------------------------------------------


def _ruled(way: tuple[Stage, ...]) -> Iterator[Cause]:
    for stage in way:
        denying = [hit for hit in stage.hits if hit.denies]
        if denying:
            yield _rule_cause(denying[-1], stage)


def _rule_cause(hit: Hit, stage: Stage) -> Cause:
    where = f"{hit.place} on {hit.node}"
    if not hit.ours:
        text = f"a rule that is not Calico's drops it: {where}: {hit.said or 'no text is known'}"
        return Cause("foreign-rule", text, hit.node, "remove or change that rule")
    if hit.policy:
        kind = "policy" if not hit.policy.startswith("Profile") else "profile"
        rule = f", {hit.field}" if hit.field else ""
        tier = f"tier {hit.tier}, " if hit.tier else ""
        return Cause(kind, f"denied by {tier}{hit.policy}{rule} ({where})", hit.node,
                     f"calicoctl explain rule {hit.rule.chain}:{hit.rule.number}")  # fmt: skip
    said = hit.said
    if "End of tier" in said:
        tier = said.partition("End of tier ")[2].partition(".")[0]
        text = f"no policy of tier {tier} allows it: end of the tier, {hit.title} ({where})"
        return Cause("end-of-tier", text, hit.node, "allow it in a policy that selects the pod")
    if "no profiles" in said:
        text = f"no policy selects the pod and no profile allows it, {hit.title} ({where})"
        return Cause("no-profile", text, hit.node)
    if "INVALID" in said or "ctstate" in said or _is_invalid_rule(hit):
        text = f"conntrack takes the packet for invalid: it knows no such connection ({where})"
        return Cause(
            "conntrack-invalid", text, hit.node, "look for another way of the first packet"
        )
    name = "untracked" if hit.rule.table == "raw" or hit.rule.chain.startswith("raw-") else "rule"
    return Cause(name, f"dropped by {where}: {hit.title} {said}".rstrip(), hit.node)


def _is_invalid_rule(hit: Hit) -> bool:
    # The second rule of a workload's chain, in both back ends (felix.rules.endpoints).
    endpoint = "cali-tw-" in hit.rule.chain or "cali-fw-" in hit.rule.chain
    return endpoint and hit.rule.number == 2 and not hit.rule.comment.partition(";")[2]


# -- the kernel's drops ---------------------------------------------------------------------------


def _dropped(story: Story, way: tuple[Stage, ...], owner: Callable[[str], str]) -> Iterator[Cause]:
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


NEARLY = 0.98
"""Of a table of connections: entries come and go between the drop and the look."""


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
    inbound = next((link for link in _links(node, NODE) if link.name == packet.interface), None)
    if inbound is not None and not inbound.forwarding and packet.head.ttl > 1:
        text = f"{node.node} does not forward: net.ipv4.conf.{inbound.name}.forwarding is 0"
        yield Cause("forwarding-off", text, node.node, "sysctl -w net.ipv4.ip_forward=1")
    if packet.reason == "IP_RPFILTER" or (route is not None and route.error == "EXDEV"):
        text = (
            f"the reverse path filter of {packet.interface or 'an interface'} on {node.node} drops"
            f" it: the way back to {packet.head.source} does not lead there"
        )
        yield Cause("reverse-path", text, node.node, "make both ways alike, or loosen rp_filter")
    if route is not None and route.error in ("EINVAL", "EACCES", "ENETUNREACH", "EHOSTUNREACH"):
        if forward and not owner(packet.head.destination):
            yield _ownerless(story, packet.head.destination)
        yield from _by_route(story, node, route)
    if packet.head.ttl <= 1 and packet.place == NODE:
        text = (
            f"the packet's time to live ends at node {node.node}: too few hops allowed, or a loop"
        )
        yield Cause("ttl", text, node.node, TTL_FIX)
    if packet.reason == "OTHERHOST":
        yield from _other_host(story, node, forward=forward)
    if route is not None and packet.reason.startswith("NEIGH"):
        yield from _dead_pod(node, route, forward=forward)
        yield _next_hop(node.node, route)
    if packet.reason == "PKT_TOO_BIG" and route is not None:
        yield _too_big(node, route, packet.head)


def _other_host(story: Story, node: Evidence, *, forward: bool) -> Iterator[Cause]:
    """The sender of a frame that is for no interface here: the node before, by its neighbour."""
    order = story.traced.nodes if forward else story.traced.nodes[::-1]
    before = [each for each in order if each is not node]
    route = next((r for each in before if (r := _route_of(each, forward)) is not None), None)
    if route is not None and route.neighbour_mac and route.neighbour_mac not in {
        link.mac for link in _links(node, NODE)
    }:  # fmt: skip
        yield _wrong_mac(before[0], node, route)


def _route_of(node: Evidence, forward: bool) -> Route | None:
    return node.facts.forward if forward else node.facts.back


def _wrong_mac(node: Evidence, other: Evidence, route: Route) -> Cause:
    hop = route.gateway or route.destination
    text = (
        f"{node.node} sends to {route.neighbour_mac} for {hop}, and no interface of"
        f" {other.node} has that MAC ({route.neighbour} neighbour entry)"
    )
    fix = f"ip neigh del {hop} dev {route.interface}"
    return Cause("wrong-neighbour", text, node.node, fix)


def _too_big(node: Evidence, route: Route, head: Head) -> Cause:
    mtu = next((k.mtu for k in _links(node, NODE) if k.name == route.interface), 0)
    mtu = min(filter(None, (mtu, route.mtu)), default=0)
    text = f"{node.node} has no room for {head.length} bytes: {route.interface} takes {mtu}"
    return Cause("mtu", text, node.node, MTU_FIX)


TTL_FIX = "see ip_default_ttl in the pod; traceroute shows a loop"
MTU_FIX = "give pods and links one MTU (docs/felix-configuration.md)"


def _by_route(story: Story, node: Evidence, route: Route) -> Iterator[Cause]:
    down = [link.name for link in _links(node, NODE) if not link.up]
    mine = [link for link in down if link.startswith("cali") or link.startswith("eth")]
    if mine:
        text = f"interface {mine[0]} of {node.node} is down, and its routes are gone"
        yield Cause("interface-down", text, node.node, f"ip link set {mine[0]} up")
    name = {"EINVAL": "blackhole", "EACCES": "prohibit-route"}.get(route.error, "no-route")
    text = f"{node.node} has no way to {route.destination}: {REFUSALS[route.error]}"
    yield Cause(name, text, node.node, f"ip route get {route.destination} on {node.node}")


def _next_hop(node: str, route: Route) -> Cause:
    hop = route.gateway or route.destination
    text = f"no host answers for {hop} on {route.interface or 'the link'} of {node}"
    text += f" (neighbour {route.neighbour or 'unknown'}); {route_text(route)}"
    return Cause("next-hop", text, node, "start that router or node, or correct the route")


# -- answers that say no --------------------------------------------------------------------------


def _refused(story: Story, answer: Head, owner: Callable[[str], str]) -> Iterator[Cause]:
    traced = story.traced
    if answer.inner is None:
        node = traced.destination_node
        port = traced.question.port
        if any(stage.place == DESTINATION for stage in story.back):
            text = f"the pod answers with a reset: nothing listens on port {port}"
            yield Cause("closed-port", text, node, "start the server, or ask for its port")
        elif story.packet is not None and _reached(story.forward):
            text = f"{answer.source} answers with a reset: nothing listens there"
            yield Cause("closed-port", text, node)
        yield Cause("reset", f"a reset comes back in the name of {answer.source}", node)
        return
    kind, code = answer.icmp_type, answer.icmp_code
    sender = owner(answer.source) or answer.source
    node = next((s.node for s in story.back if s.packet is not None), "")
    inner = answer.inner
    ours = next((n for n in traced.nodes if n.node in sender), None)
    if (kind, code) in ((3, 4), (2, 0)):
        text = f"{sender} has no room for {inner.length} bytes: its next link takes {answer.mtu}"
        text += _narrow(story, answer.mtu)
        yield Cause("mtu", text, node, MTU_FIX)
    if (kind in (11, 3) and (kind, code) == (11, 0)) or (
        kind == 3 and code == 0 and ":" in inner.source
    ):
        text = f"the packet's time to live ended at {sender}: too few hops allowed, or a loop"
        yield Cause("ttl", text, node, TTL_FIX)
    if (kind, code) in _PROHIBITED:
        text = f"{sender} prohibits it (ICMP type {kind} code {code}): a filter on the way"
        yield Cause("prohibited", text, node, f"ask the administrator of {sender}")
    if (kind, code) in ((3, 3), (1, 4)):
        rejecting = [hit for hit in story.hits() if hit.denies]
        if rejecting:
            yield _rule_cause(rejecting[-1], story.forward[-1])
        elif any(stage.place == DESTINATION for stage in story.forward):
            text = f"nothing listens on {inner.protocol} port {inner.destination_port} in the pod"
            yield Cause("closed-port", text, traced.destination_node)
        else:
            yield Cause("rejected", f"{sender} rejects it: port unreachable", node)
    yield from _unreachable_from(story, answer, sender, ours, owner)


def _unreachable_from(
    story: Story, answer: Head, sender: str, ours: Evidence | None, owner: Callable[[str], str]
) -> Iterator[Cause]:
    """A node or router that knows no way on: its route, forwarding, or next hop."""
    yield from _dropped(story, story.forward, owner)
    inner = answer.inner
    assert inner is not None
    if not owner(inner.destination):
        yield _ownerless(story, inner.destination)
    if ours is not None and ours.facts.forward is not None:
        route = ours.facts.forward
        if route.error:
            yield from _by_route(story, ours, route)
        yield _next_hop(ours.node, route)
    text = f"{sender} says that {inner.destination} is unreachable (type {answer.icmp_type} code"
    yield Cause("unreachable", f"{text} {answer.icmp_code})")


def _ownerless(story: Story, address: str) -> Cause:
    asked = story.traced.question.destination
    if address != asked:
        text = f"{asked} is translated to {address}, which no pod and no node has: a dead endpoint"
        return Cause("dead-endpoint", text, "", "see the endpoints of the Service, and its proxy")
    return Cause(
        "no-owner", f"no pod and no node has the address {address}", "", "see its DNS or IPAM"
    )


def _narrow(story: Story, mtu: int) -> str:
    for node in story.traced.nodes:
        for link in node.facts.links:
            if link.mtu == mtu:
                return f" ({link.name} of {node.node})"
    return ""


# -- lost without a word --------------------------------------------------------------------------


def _reached(way: tuple[Stage, ...]) -> bool:
    return any(stage.place == DESTINATION and stage.what == RECEIVED for stage in way)


def _lost(
    story: Story, way: tuple[Stage, ...], owner: Callable[[str], str], *, forward: bool
) -> Iterator[Cause]:
    traced = story.traced
    seen = [stage for stage in way if stage.packet is not None]
    if not seen:
        return
    last = seen[-1]
    node = traced.of(last.node)
    assert last.packet is not None
    if last.place == NODE and last.what == SENT and last.packet.interface.startswith("cali"):
        yield from _pod_end(node, DESTINATION if forward else SOURCE, last.packet.interface)
    target = last.packet.head.destination
    if forward and not owner(target):
        yield _ownerless(story, target)
    if last.place == NODE and last.what == RECEIVED and node is not None:
        yield from _inside_node(story, node, last, forward=forward)
    if last.place == NODE and last.what == SENT and node is not None:
        yield from _on_the_wire(story, node, last, forward=forward)
    if last.place == SOURCE:
        yield Cause("not-received", f"it leaves the pod, and {last.node} does not receive it",
                    last.node)  # fmt: skip


def _pod_end(node: Evidence | None, place: str, interface: str) -> Iterator[Cause]:
    if node is None:
        return
    yield from _down(node, place, interface)
    yield Cause("pod-silent", f"the pod behind {interface} does not receive it", node.node)


def _dead_pod(node: Evidence, route: Route, *, forward: bool) -> Iterator[Cause]:
    """A pod of this node that does not answer for its address, because its link is down."""
    asked = node.ready.question
    own = asked.destination_interface if forward else asked.source_interface
    if own and route.interface == own:
        yield from _down(node, DESTINATION if forward else SOURCE, own)


def _down(node: Evidence, place: str, interface: str) -> Iterator[Cause]:
    for link in _links(node, place):
        if not link.up:
            text = (
                f"{link.name} in the pod behind {interface} is down: the pod is dead or half made"
            )
            yield Cause("pod-down", text, node.node, "restart the pod")


def _inside_node(story: Story, node: Evidence, last: Stage, *, forward: bool) -> Iterator[Cause]:
    route = node.facts.forward if forward else node.facts.back
    assert last.packet is not None
    inbound = next((k for k in _links(node, NODE) if k.name == last.packet.interface), None)
    if inbound is not None and not inbound.forwarding:
        text = f"{node.node} does not forward: net.ipv4.conf.{inbound.name}.forwarding is 0"
        yield Cause("forwarding-off", text, node.node, "sysctl -w net.ipv4.ip_forward=1")
    if route is None:
        return
    if route.error == "EXDEV":
        text = f"the reverse path filter of {last.packet.interface} on {node.node} drops it"
        yield Cause("reverse-path", text, node.node)
    elif route.error:
        yield from _by_route(story, node, route)
    elif route.neighbour in ("incomplete", "failed", ""):
        yield from _dead_pod(node, route, forward=forward)
        yield _next_hop(node.node, route)
    else:
        yield Cause("lost-inside", f"{node.node} receives it and does not send it on", node.node)


def _on_the_wire(story: Story, node: Evidence, last: Stage, *, forward: bool) -> Iterator[Cause]:
    traced = story.traced
    route = node.facts.forward if forward else node.facts.back
    assert last.packet is not None
    other = traced.of(traced.destination_node if forward else traced.source_node)
    if route is None:
        return
    hop = route.gateway or route.destination
    if other is not None and other is not node and route.neighbour_mac:
        macs = {link.mac for link in _links(other, NODE)}
        if route.neighbour_mac not in macs and route.neighbour == "permanent":
            yield _wrong_mac(node, other, route)
    text = f"{node.node} sends it out by {last.packet.interface} to {hop}, and"
    where = "it is not seen again" if other is None else f"{other.node} does not receive it"
    yield Cause("lost-on-the-way", f"{text} {where}; {route_text(route)}", node.node)


def _unanswered(story: Story, owner: Callable[[str], str]) -> Iterator[Cause]:
    traced = story.traced
    node = traced.of(traced.destination_node)
    port = traced.question.port
    if node is None:
        yield Cause("no-answer", "it went out to its destination, and no answer came")
        return
    drop = next((stage for stage in story.forward if stage.what == DROPPED), None)
    counters = node.facts.counters
    full = [k for k in counters if k.rpartition(".")[2] in (
        "ListenOverflows", "ListenDrops", "TCPReqQFullDrop")]  # fmt: skip
    if full:
        said = ", ".join(f"{k} +{counters[k]}" for k in full)
        text = f"the queue of the listening socket of port {port} is full: the kernel drops SYNs"
        yield Cause("backlog", f"{text} ({said})", node.node, "see why the server accepts nothing")
    if drop is not None:
        yield from _dropped(story, (drop,), owner)
    if node.facts.listening is False and traced.question.protocol == TCP:
        yield Cause("closed-port", f"nothing listens on port {port} in the pod", node.node)
    if traced.question.protocol == UDP:
        text = "the datagram arrives in the pod, and the pod sends no answer"
        yield Cause("no-answer", text, node.node)
    yield Cause(
        "no-answer", "the packet arrives in the pod, and the pod does not answer", node.node
    )


def _links(node: Evidence | None, place: str) -> list[Link]:
    return [] if node is None else [link for link in node.facts.links if link.place == place]


def _last_text(way: tuple[Stage, ...]) -> str:
    seen = [stage for stage in way if stage.packet is not None]
    return f"{seen[-1].node}: {seen[-1].text}" if seen else "nowhere"
