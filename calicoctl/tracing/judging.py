"""Why a traced connection failed: one cause, named by what the kernels themselves said. Pure.

In the order of certainty: a rule that dropped the packet, the kernel's reason, an error that came
back, a place where the packet was seen last, and what the facts say about that place.
Tested in tests/calicoctl/test_tracing_cause.py and, with planted causes, tests/trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from calicoctl.tracing.answer_causes import refused
from calicoctl.tracing.cause import Cause, links_at
from calicoctl.tracing.drop_causes import (
    dropped,
)
from calicoctl.tracing.evidence import broken
from calicoctl.tracing.lost_causes import lost, unanswered
from calicoctl.tracing.rule_causes import ruled
from calicoctl.tracing.story import Stage, Story
from libcalico.local.packet_trace import (
    SOURCE,
)


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
    for first in _causes(story, owner):
        return first
    return Cause("unknown", f"the way ends unexplained; last seen: {_last_text(story.forward)}")


def _causes(story: Story, owner: Callable[[str], str]) -> Iterator[Cause]:
    forward_ok = story.packet is not None and story.traced.arrived(story.packet)
    way = story.back if forward_ok and story.answer is not None else story.forward
    if not forward_ok or (story.answer is not None and not broken(story.answer)):
        yield from ruled(way)
        yield from dropped(story, way, owner)
    if story.answer is not None and broken(story.answer):
        yield from refused(story, story.answer, owner)
    if story.back and story.answer is not None and broken(story.answer):
        yield from ruled(story.forward)
    if not forward_ok:
        yield from lost(story, story.forward, owner, forward=True)
    elif story.answer is None:
        yield from unanswered(story, owner)
    elif not story.traced.arrived(story.answer):
        yield from lost(story, story.back, owner, forward=False)


def _well(story: Story) -> str:
    probe = story.traced.probe
    if probe is None:
        return "the connection was answered"
    return f"{probe.result} within {probe.seconds * 1000:.1f} ms"


def _nothing_left(story: Story) -> Cause:
    probe, node = story.traced.probe, story.traced.source_node
    for link in links_at(story.traced.of(node), SOURCE):
        if not link.up:
            text = f"interface {link.name} of the source pod is down: nothing leaves it"
            return Cause("interface-down", text, node, "restart the pod, or set the link up")
    if probe is not None and probe.result in ("unreachable", "failed"):
        text = f"the source pod's own kernel refuses to send: {probe.detail}"
        return Cause("source-refuses", text, node, "see routes and links inside the pod")
    if probe is None:
        return Cause("no-attempt", "no attempt was seen; make one within --wait SECONDS")
    return Cause("not-seen", f"no packet of the attempt was seen ({probe.result})", node)


def _last_text(way: tuple[Stage, ...]) -> str:
    seen = [stage for stage in way if stage.packet is not None]
    return f"{seen[-1].node}: {seen[-1].text}" if seen else "nowhere"
