"""Causes of a packet that is lost without a word: where it was seen last. Pure.

Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from calicoctl.tracing.cause import Cause, links_at
from calicoctl.tracing.drop_causes import (
    by_route,
    dead_pod,
    down,
    dropped,
    forwarding_off,
    next_hop,
    ownerless,
    wrong_mac,
)
from calicoctl.tracing.evidence import Evidence
from calicoctl.tracing.story import Stage, Story, route_text
from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    RECEIVED,
    SENT,
    SOURCE,
)

TCP, UDP = 6, 17


def lost(
    story: Story, way: tuple[Stage, ...], owner: Callable[[str], str], *, forward: bool
) -> Iterator[Cause]:
    """The place where a packet was seen last, and what is wrong there."""
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
        yield ownerless(story, target)
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
    yield from down(node, place, interface)
    yield Cause("pod-silent", f"the pod behind {interface} does not receive it", node.node)


def _inside_node(story: Story, node: Evidence, last: Stage, *, forward: bool) -> Iterator[Cause]:
    route = node.facts.forward if forward else node.facts.back
    assert last.packet is not None
    yield from forwarding_off(node, last.packet.interface)
    if route is None:
        return
    if route.error == "EXDEV":
        text = f"the reverse path filter of {last.packet.interface} on {node.node} drops it"
        yield Cause("reverse-path", text, node.node)
    elif route.error:
        yield from by_route(story, node, route)
    elif route.neighbour in ("incomplete", "failed", ""):
        yield from dead_pod(node, route, forward=forward)
        yield next_hop(node.node, route)
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
        macs = {link.mac for link in links_at(other, NODE)}
        if route.neighbour_mac not in macs and route.neighbour == "permanent":
            yield wrong_mac(node, other, route)
    text = f"{node.node} sends it out by {last.packet.interface} to {hop}, and"
    where = "it is not seen again" if other is None else f"{other.node} does not receive it"
    yield Cause("lost-on-the-way", f"{text} {where}; {route_text(route)}", node.node)


def unanswered(story: Story, owner: Callable[[str], str]) -> Iterator[Cause]:
    """A packet that arrived, and had no answer."""
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
        yield from dropped(story, (drop,), owner)
    if node.facts.listening is False and traced.question.protocol == TCP:
        yield Cause("closed-port", f"nothing listens on port {port} in the pod", node.node)
    if traced.question.protocol == UDP:
        text = "the datagram arrives in the pod, and the pod sends no answer"
        yield Cause("no-answer", text, node.node)
    yield Cause(
        "no-answer", "the packet arrives in the pod, and the pod does not answer", node.node
    )
