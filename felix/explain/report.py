"""Answers as data: who decided, the rule as it was written, where it stands in the kernel.

`answers` asks about one kind of packet or about all of them and joins those that fare alike.
`as_tree` is what `-o json` prints.

Tested in tests/felix/explain/test_report.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from felix.calc.policy_model import ResolvedRule
from felix.explain.classes import Class, classes, merged
from felix.explain.flow import Kind
from felix.explain.misses.near import NONE_NEAR, Misses, Near
from felix.explain.misses.tree import miss_tree
from felix.explain.path import Questions
from felix.explain.places import Place, place_of
from felix.explain.staged import Would
from felix.explain.stations import Explanation, Station
from felix.explain.walk import By, Step
from felix.explain.written import written
from libcalico.model import ResourceKey


@dataclass(frozen=True, slots=True)
class Judgement:
    """A station with its place in the kernel, and the deciding rule as it was written."""

    station: Station
    place: Place | None
    number: int | None = None
    rule: str = ""

    @property
    def field(self) -> str:
        """`ingress[2]`: where the rule stands in its policy."""
        return "" if self.number is None else f"{self.station.direction}[{self.number}]"


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens to packets that fare alike. `would`: what staged policies would change.

    `near`: the rules that nearly decided otherwise.
    """

    packets: str
    explanation: Explanation
    judgements: tuple[Judgement, ...]
    would: Explanation | None = None
    would_judgements: tuple[Judgement, ...] = ()
    near: Near = NONE_NEAR


def answers(
    questions: Questions, version: int, *, kind: Kind | None = None, protocol: int | None = None
) -> list[Answer]:
    """The answer for one kind of packet; without one for all, those alike joined."""
    if kind is not None:
        asked = [Class(kind, str(kind))]
    else:
        world = questions.world
        asked = classes(
            _rules(questions),
            version,
            destination=world.ports(questions.destination.endpoint),
            source=world.ports(questions.source.endpoint),
            protocol=protocol,
        )
    would, misses = Would(questions), Misses(questions)
    groups: dict[object, tuple[list[str], Explanation, Explanation | None]] = {}
    for each in asked:
        now = questions.ask(each.example, version)
        then = would.ask(now)
        which = (_fate(now), None if then is None else _fate(then))
        groups.setdefault(which, ([], now, then))[0].append(each.label)
    return [
        Answer(
            labels[0] if kind is not None else merged(labels, len(asked)),
            now,
            tuple(judgement(questions, s, version) for s in now.stations),
            then,
            ()
            if then is None or would.questions is None
            else tuple(judgement(would.questions, s, version) for s in then.stations),
            misses.of(now, kinds=kind is not None),
        )
        for labels, now, then in groups.values()
    ]


def _rules(questions: Questions) -> Iterable[ResolvedRule]:
    would = Would(questions).questions
    for each in (questions, would):
        if each is None:
            continue
        for end in (each.source, each.destination):
            engine = each.calculation(end.node).engine
            for policy in (*engine.policies.values(), *engine.profiles.values()):
                yield from policy.ingress
                yield from policy.egress


def _fate(explanation: Explanation) -> object:
    rulings = (
        (s.end.endpoint, s.stage, s.ingress, s.ruling.allowed, s.ruling.by, s.ruling.policy,
         s.ruling.rule, s.ruling.tier)
        for s in explanation.stations
    )  # fmt: skip
    return (explanation.allowed, explanation.certain, explanation.notes, tuple(rulings))


def judgement(questions: Questions, station: Station, version: int) -> Judgement:
    """A station with what belongs to it."""
    place = place_of(questions, station, version)
    ruling = station.ruling
    if ruling.policy is None or ruling.rule is None:
        return Judgement(station, place)
    stored = questions.world.objects.get(ruling.policy)
    origin = written(ruling.policy, stored, ruling.rule, ingress=station.ingress)
    if origin is None:
        return Judgement(station, place)
    number, rule = origin
    return Judgement(station, place, number, rule_text(rule))


def rule_text(rule: object) -> str:
    """A rule as JSON of one line, without fields that have their default."""
    return msgspec.json.encode(rule).decode()


def decided_by(item: Judgement) -> str:
    """What decided, in words."""
    station = item.station
    ruling = station.ruling
    policy = ruling.policy
    match ruling.by:
        case By.RULE if policy is not None:
            where = f"tier {ruling.tier}, " if ruling.tier else ""
            rule = f", {item.field}" if item.field else ", closed: see its condition"
            if not item.field and policy.name == "projectcalico-default-allow":
                rule = ""
            return f"{where}{named(policy)}{rule}"
        case By.MISSING_PROFILE if policy is not None:
            return f"{named(policy)}, which does not exist"
        case By.TIER_END:
            return f"end of tier {ruling.tier}: no policy of it allows the packet"
        case By.NO_PROFILE:
            return "no policy and no profile allows it"
        case By.FAILSAFE:
            return f"failsafe port of felix ({station.direction})"
    return ruling.note or "nothing here decides"


def named(key: ResourceKey) -> str:
    """`NetworkPolicy shop/web`."""
    return f"{key.kind} {key.namespace}/{key.name}" if key.namespace else f"{key.kind} {key.name}"


def as_tree(questions: Questions, answers: Iterable[Answer]) -> dict[str, object]:
    """Everything as plain values."""
    return {
        "source": _end(questions, source=True),
        "destination": _end(questions, source=False),
        "answers": [_answer(each) for each in answers],
    }


def _end(questions: Questions, *, source: bool) -> dict[str, object]:
    end = questions.source if source else questions.destination
    return {
        "title": end.title,
        "kind": end.what.value,
        "node": end.node,
        "addresses": [str(address) for address in end.addresses],
        "endpoint": None if end.endpoint is None else named(end.endpoint),
    }


def _answer(answer: Answer) -> dict[str, object]:
    packet = answer.explanation.packet
    tree: dict[str, object] = {
        "packets": answer.packets,
        "example": {
            "source": str(packet.source),
            "destination": str(packet.destination),
            "protocol": packet.kind.protocol,
            "sourcePort": packet.kind.source_port,
            "destinationPort": packet.kind.destination_port,
            "icmpType": packet.kind.icmp_type,
            "icmpCode": packet.kind.icmp_code,
        },
        "allowed": answer.explanation.allowed,
        "certain": answer.explanation.certain,
        "stations": [_judgement(each) for each in answer.judgements],
        "nearMisses": [miss_tree(each) for each in answer.near.misses],
        "nearMissesLeftOut": answer.near.more,
        "notes": list(answer.explanation.notes),
    }
    if answer.would is not None:
        tree["would"] = {
            "allowed": answer.would.allowed,
            "stations": [_judgement(each) for each in answer.would_judgements],
        }
    return tree


def _judgement(item: Judgement) -> dict[str, object]:
    station, place = item.station, item.place
    ruling = station.ruling
    tree: dict[str, object] = {
        "direction": station.direction,
        "of": station.end.title,
        "kind": station.end.what.value,
        "node": station.end.node,
        "stage": station.stage,
        "sure": station.sure,
        "allowed": ruling.allowed,
        "by": ruling.by.value,
        "tier": ruling.tier,
        "policy": None if ruling.policy is None else _key(ruling.policy),
        "ruleNumber": item.number,
        "rule": json.loads(item.rule) if item.rule else None,
        "before": [_step(step) for step in ruling.steps],
        "kernel": None,
    }
    if place is not None:
        tree["kernel"] = {
            "table": place.table,
            "chain": place.chain,
            "rule": place.rule or None,
            "rules": [place.first, place.last] if place.rule else None,
        }
    return tree


def _key(key: ResourceKey) -> dict[str, str]:
    return {"kind": key.kind, "namespace": key.namespace, "name": key.name}


def _step(step: Step) -> dict[str, object]:
    return {"tier": step.tier, "policy": _key(step.policy), "did": step.did}
