"""From the lines of the nodes to the stages of one packet's way, and of its answer's. Pure.

Which packet: the first of an attempt that succeeded, else the first whose way ended early, and of
the answers the one that says no, if any. Microseconds are of one node's clock, so of the wire
between two machines they are not known.
Tested in tests/calicoctl/test_tracing_story.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from calicoctl.tracing.evidence import Evidence, Traced, broken
from calicoctl.tracing.naming import Hit, Names
from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    SENT,
    SOURCE,
    Head,
    Packet,
    Route,
)

RULES, ROUTE, NAT = "rules", "route", "translated"


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the way. `what` is received, sent, dropped, rules, route or translated.

    `micros` since the stage before that has a time, None where no one clock saw both.
    """

    node: str
    place: str
    what: str
    text: str
    micros: float | None = None
    hits: tuple[Hit, ...] = ()
    packet: Packet | None = None
    route: Route | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """The whole: `forward` is the way of `packet`, `back` that of its `answer`, if one was seen."""

    traced: Traced
    packet: Head | None
    forward: tuple[Stage, ...]
    answer: Head | None
    back: tuple[Stage, ...]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def hits(self) -> Iterator[Hit]:
        """All rules that were met, of both ways."""
        for stage in (*self.forward, *self.back):
            yield from stage.hits


def tell(traced: Traced, names: Names, missing: tuple[str, ...] = ()) -> Story:
    """The story of what was traced."""
    packet = _followed(traced)
    answer = _answer(traced, packet)
    forward = () if packet is None else tuple(_stages(traced, packet, names, forward=True))
    back = () if answer is None else tuple(_stages(traced, answer, names, forward=False))
    lacking = (*missing, *_lacking(traced))
    notes = (*_translated(traced), *_counted(traced))
    return Story(traced, packet, forward, answer, back, lacking, notes)


def noted(story: Story, notes: tuple[str, ...]) -> Story:
    """The story with notes beside it."""
    return replace(story, notes=(*story.notes, *notes))


def _followed(traced: Traced) -> Head | None:
    heads = traced.forwards()
    if not heads:
        return None
    # A watch may begin in the middle of a connection of the pod's own.
    firsts = [h for h in heads if h.flags in ("SYN", "")] or heads
    if traced.succeeded:
        return next((h for h in firsts if traced.arrived(h)), firsts[0])
    answered = [h for h in traced.answers() if broken(h)]
    about = {h.inner.same for h in answered if h.inner is not None}
    named = next((h for h in heads if h.same in about), None)
    return named or next((h for h in (*firsts, *heads) if not traced.arrived(h)), firsts[0])


def _answer(traced: Traced, packet: Head | None) -> Head | None:
    answers = traced.answers()
    if traced.succeeded:
        good = [h for h in answers if not broken(h)]
        return next((h for h in good if h.flags == "SYN+ACK"), next(iter(good), None))
    no = next((h for h in answers if broken(h)), None)
    return no or next((h for h in answers if not traced.arrived(h)), next(iter(answers), None))


def _stages(traced: Traced, head: Head, names: Names, *, forward: bool) -> Iterator[Stage]:
    nodes = traced.nodes if forward else traced.nodes[::-1]
    last: tuple[str, int] | None = None
    addresses = (head.source, head.destination)
    for node in nodes:
        way = node.way(head.same)
        met = [names.hit(node.node, rule) for rule in node.met(head.same) if rule.number]
        has_rules = False
        for each in way:
            ends_rules = each.place == NODE and each.kind in (SENT, DROPPED)
            if ends_rules and not has_rules:
                has_rules = True
                yield from _inside(node, met, forward)
            now = (each.head.source, each.head.destination)
            if now != addresses and each.head.inner is None:
                yield Stage(node.node, each.place, NAT, _translation(addresses, now))
                addresses = now
            micros = None
            if last is not None and last[0] == node.ready.boot:
                micros = (each.time - last[1]) / 1000
            last = (node.ready.boot, each.time)
            yield Stage(node.node, each.place, each.kind, _place(each), micros, packet=each)
        if not has_rules and (met or any(each.place == NODE for each in way)):
            yield from _inside(node, met, forward)


def _inside(node: Evidence, met: list[Hit], forward: bool) -> Iterator[Stage]:
    if met:
        yield Stage(
            node.node,
            NODE,
            RULES,
            f"meets {len(met)} rule{'s' if len(met) > 1 else ''}",
            hits=tuple(met),
        )
    route = node.facts.forward if forward else node.facts.back
    if route is not None:
        yield Stage(node.node, NODE, ROUTE, route_text(route), route=route)


def _place(packet: Packet) -> str:
    where = {SOURCE: "the source pod", DESTINATION: "the destination pod"}.get(packet.place, "")
    interface = packet.interface or "no interface"
    if packet.kind == DROPPED:
        by = f" in {packet.function}" if packet.function else ""
        at = f" ({where or interface})"
        return f"the kernel drops it: {packet.reason}{by}{at}"
    if where:
        return f"{'leaves' if packet.kind == SENT else 'comes into'} {where} by {interface}"
    return f"{'goes out' if packet.kind == SENT else 'comes in'} by {interface}"


def _translation(was: tuple[str, str], now: tuple[str, str]) -> str:
    parts = []
    if was[0] != now[0]:
        parts.append(f"source {was[0]} becomes {now[0]}")
    if was[1] != now[1]:
        parts.append(f"destination {was[1]} becomes {now[1]}")
    return ", ".join(parts)


def route_text(route: Route) -> str:
    """A route as one line."""
    if route.error:
        return f"no route to {route.destination}: {REFUSALS.get(route.error, route.error)}"
    via = f" via {route.gateway}" if route.gateway else ""
    by = f" by {route.interface}" if route.interface else ""
    text = f"route {route.prefix}{via}{by}"
    if route.kind not in ("unicast", ""):
        text += f" ({route.kind})"
    if route.peer:
        text += f", announced by BGP peer {route.peer} since {route.since}"
    elif route.protocol == 109:
        text += ", written by felix"
    elif route.protocol:
        text += f", of protocol {PROTOCOLS.get(route.protocol, str(route.protocol))}"
    return text


PROTOCOLS = {1: "redirect", 2: "kernel", 3: "boot", 4: "static", 12: "bird", 16: "dhcp"}
REFUSALS = {
    "ENETUNREACH": "the kernel has none",
    "EHOSTUNREACH": "it is unreachable, or this host does not forward",
    "EACCES": "it is prohibited",
    "EINVAL": "a blackhole takes it",
    "EXDEV": "the source does not lie behind the interface where it comes in (reverse path filter)",
}


def _translated(traced: Traced) -> Iterator[str]:
    """The connections of this question that a node translates."""
    for node in traced.nodes:
        for each in node.facts.connections:
            source, _, destination = each.original.partition(" > ")
            if each.reply != f"{destination} > {source}":
                state = f" ({each.state})" if each.state else ""
                yield (
                    f"{node.node} translates {each.original}: answers are expected as"
                    f" {each.reply}{state}"
                )


def _counted(traced: Traced) -> Iterator[str]:
    """The rules whose counts moved, of nodes that cannot tell which rules were met."""
    for node in traced.nodes:
        moved = [rule for rule in node.rules if rule.kind == "counted"]
        if moved:
            named = [f"{rule.table} {rule.chain}:{rule.number} ({rule.verdict})" for rule in moved]
            yield f"{node.node}: rules whose counts moved meanwhile: {', '.join(named)}"


def _lacking(traced: Traced) -> Iterator[str]:
    for node in traced.nodes:
        ready = node.ready
        if ready.rules:
            yield f"{node.node}: rules: {ready.rules}"
        if ready.drops:
            yield f"{node.node}: packets and the kernel's reasons: {ready.drops}"
        for each in node.facts.missing:
            yield f"{node.node}: {each}"
        if node.end is None:
            yield f"{node.node}: its trace broke off"
        elif node.end.lost:
            yield f"{node.node}: {node.end.lost} events were lost"
        elif node.end.cut:
            yield f"{node.node}: more events than --count came; the rest is not shown"
