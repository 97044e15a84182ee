"""A story as text and as JSON. Pure.

Tested in tests/calicoctl/test_tracing_story.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from calicoctl.tracing.cause import Cause
from calicoctl.tracing.naming import Hit
from calicoctl.tracing.story import RULES, Stage, Story
from felix.explain.flow import protocol_name
from libcalico.local.packet_trace import Head


def as_text(story: Story, cause: Cause, titles: tuple[str, str]) -> str:
    """The story for people: the verdict first, then each stage."""
    return "\n".join(_lines(story, cause, titles)) + "\n"


def _lines(story: Story, cause: Cause, titles: tuple[str, str]) -> Iterator[str]:
    asked = story.traced.question
    port = f" port {asked.port}" if asked.port else ""
    yield (
        f"{titles[0]} ({asked.source}) -> {titles[1]} ({asked.destination}),"
        f" {protocol_name(asked.protocol)}{port}"
    )
    yield f"{'REACHED' if cause.name == 'ok' else 'NOT REACHED'}: {cause.text}"
    if cause.fix:
        yield f"  {cause.fix}"
    probe = story.traced.probe
    if probe is not None:
        detail = f" ({probe.detail})" if probe.detail else ""
        yield f"An attempt was sent: {probe.result}{detail} after {probe.seconds * 1000:.1f} ms."
    elif story.packet is not None:
        yield "An attempt of the pod itself was followed."
    yield from _way("The packet", story.packet, story.forward)
    yield from _way("The answer", story.answer, story.back)
    for note in story.notes:
        yield f"Note: {note}"
    for lack in story.missing:
        yield f"Missing: {lack}"


def _head(head: Head) -> str:
    text = head.flags or protocol_name(head.protocol)
    if head.inner is not None:
        text = f"ICMP type {head.icmp_type} code {head.icmp_code} from {head.source}"
    return f"{text}, {head.length} bytes"


def _way(title: str, head: Head | None, stages: tuple[Stage, ...]) -> Iterator[str]:
    if head is None or not stages:
        return
    yield f"{title} ({_head(head)}):"
    for stage in stages:
        micros = "" if stage.micros is None else f"{stage.micros:9.1f} us"
        yield f"  {micros:>12}  {stage.node}: {stage.text}"
        if stage.what == RULES:
            for hit in stage.hits:
                yield f"                  {_hit(hit)}"


def _hit(hit: Hit) -> str:
    verdict = hit.rule.verdict
    if hit.rule.target:
        verdict += f" {hit.rule.target}"
    said = str(hit)
    return f"{hit.place}  {verdict}" + (f"  [{said}]" if said else "")


def as_tree(story: Story, cause: Cause, titles: tuple[str, str]) -> dict[str, object]:
    """The story as plain values, for JSON."""
    return {
        "source": titles[0],
        "destination": titles[1],
        "question": msgspec.to_builtins(story.traced.question),
        "reached": cause.name == "ok",
        "cause": {"name": cause.name, "text": cause.text, "node": cause.node, "fix": cause.fix},
        "probe": msgspec.to_builtins(story.traced.probe),
        "packet": msgspec.to_builtins(story.packet),
        "forward": [_stage(each) for each in story.forward],
        "answer": msgspec.to_builtins(story.answer),
        "back": [_stage(each) for each in story.back],
        "notes": list(story.notes),
        "missing": list(story.missing),
    }


def _stage(stage: Stage) -> dict[str, object]:
    return {
        "node": stage.node,
        "place": stage.place,
        "what": stage.what,
        "text": stage.text,
        "microseconds": stage.micros,
        "rules": [_rule(hit) for hit in stage.hits],
        "reason": "" if stage.packet is None else stage.packet.reason,
        "function": "" if stage.packet is None else stage.packet.function,
        "route": msgspec.to_builtins(stage.route),
    }


def _rule(hit: Hit) -> dict[str, object]:
    return {
        "place": hit.place,
        "verdict": hit.rule.verdict,
        "target": hit.rule.target,
        "title": hit.title,
        "policy": hit.policy,
        "tier": hit.tier,
        "rule": hit.field,
        "written": hit.written,
        "said": hit.said,
        "ours": hit.ours,
    }
