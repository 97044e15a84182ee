"""Causes that come back: resets, and errors of ICMP with their sender. Pure.

Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from calicoctl.tracing.cause import Cause
from calicoctl.tracing.drop_causes import (
    MTU_FIX,
    TTL_FIX,
    by_route,
    dropped,
    next_hop,
    ownerless,
)
from calicoctl.tracing.evidence import Evidence
from calicoctl.tracing.rule_causes import rule_cause
from calicoctl.tracing.story import Stage, Story
from felix.explain.flow import protocol_name
from libcalico.local.packet_trace import (
    DESTINATION,
    RECEIVED,
    Head,
)

_PROHIBITED = {(3, 9), (3, 10), (3, 13), (1, 1)}


def refused(story: Story, answer: Head, owner: Callable[[str], str]) -> Iterator[Cause]:
    """A reset or an error of ICMP that came back."""
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
        for stage in story.forward:
            if stage.packet is not None and stage.packet.reason == "NO_SOCKET":
                text = f"node {stage.node} has no socket that listens on port {port}"
                yield Cause("closed-port", text, stage.node)
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
    if (kind, code) == ((3, 0) if ":" in inner.source else (11, 0)):
        text = f"the packet's time to live ended at {sender}: too few hops allowed, or a loop"
        yield Cause("ttl", text, node, TTL_FIX)
    if (kind, code) in _PROHIBITED:
        text = f"{sender} prohibits it (ICMP type {kind} code {code}): a filter on the way"
        yield Cause("prohibited", text, node, f"ask the administrator of {sender}")
    if (kind, code) in ((3, 3), (1, 4)):
        rejecting = [hit for hit in story.hits() if hit.denies]
        if rejecting:
            yield rule_cause(rejecting[-1], story.forward[-1])
        elif any(stage.place == DESTINATION for stage in story.forward):
            what = f"{protocol_name(inner.protocol)} port {inner.destination_port}"
            text = f"nothing listens on {what} in the pod"
            yield Cause("closed-port", text, traced.destination_node)
        else:
            yield Cause("rejected", f"{sender} rejects it: port unreachable", node)
    yield from _unreachable_from(story, answer, sender, ours, owner)


def _unreachable_from(
    story: Story, answer: Head, sender: str, ours: Evidence | None, owner: Callable[[str], str]
) -> Iterator[Cause]:
    """A node or router that knows no way on: its route, forwarding, or next hop."""
    yield from dropped(story, story.forward, owner)
    inner = answer.inner
    assert inner is not None
    if not owner(inner.destination):
        yield ownerless(story, inner.destination)
    if ours is not None and ours.facts.forward is not None:
        route = ours.facts.forward
        if route.error:
            yield from by_route(story, ours, route)
        yield next_hop(ours.node, route)
    text = f"{sender} says that {inner.destination} is unreachable (type {answer.icmp_type} code"
    yield Cause("unreachable", f"{text} {answer.icmp_code})")


def _narrow(story: Story, mtu: int) -> str:
    for node in story.traced.nodes:
        for link in node.facts.links:
            if link.mtu == mtu:
                return f" ({link.name} of {node.node})"
    return ""


def _reached(way: tuple[Stage, ...]) -> bool:
    return any(stage.place == DESTINATION and stage.what == RECEIVED for stage in way)
