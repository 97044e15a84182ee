"""What felix of this node says about the stations of an answer, and what its kernel has.

Only stations on this node are asked about; felix knows its own endpoints. Where its word differs
from the datastore's, or the kernel from felix's, that is said first and loudly: the packet may fare
otherwise than the answer says.
Tested in `tests/felix/kernel/test_explain_live.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from calicoctl.explaining.talking import ask_felix
from felix.explain.path import Questions
from felix.explain.report import Answer, Judgement
from felix.explain.stations import HOST
from felix.explain.walk import By
from libcalico.local.trace_messages import Ask, Decided, Station
from libcalico.local.trace_messages import Told as Answered


@dataclass(frozen=True, slots=True)
class Compared:
    """A station as the datastore and felix see it."""

    packets: str
    judgement: Judgement
    decided: Decided

    @property
    def agrees(self) -> bool:
        """Whether felix decides alike."""
        ruling = self.judgement.station.ruling
        policy = ruling.policy
        named = [] if policy is None else [policy.kind, policy.namespace, policy.name]
        mine = (ruling.allowed, ruling.by.value, ruling.tier, named, ruling.rule)
        theirs = self.decided
        return not theirs.unknown and mine == (
            theirs.allowed,
            theirs.by,
            theirs.tier,
            theirs.policy,
            theirs.rule,
        )

    @property
    def differs(self) -> list[str]:
        """Why the packet may fare otherwise here than the datastore says; empty: it does not."""
        place, decided = self.judgement.place, self.decided
        if decided.unknown:
            return ["felix does not know this endpoint"]
        reasons = [] if self.agrees else [f"felix decides otherwise: {_otherwise(decided)}"]
        if place is not None and decided.rules is None:
            reasons.append(f"the kernel has no chain {place.chain} in {place.table}")
        elif place is not None and not decided.stands:
            reasons.append(f"the kernel's chain {place.chain} is not as felix wants it")
        return [*reasons, *decided.differs]

    @property
    def counted(self) -> tuple[int, int] | None:
        """Packets and bytes that the deciding rule has matched."""
        place, rules = self.judgement.place, self.decided.rules
        if place is None or not place.rule or rules is None or place.rule > len(rules):
            return None
        return rules[place.rule - 1]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """All that felix of a node says about the stations of an answer."""

    node: str
    backend: str = ""
    ready: bool = False
    stations: list[Compared] = field(default_factory=list)
    error: str = ""

    @property
    def differing(self) -> list[Compared]:
        """The stations that are not as the datastore says."""
        return [each for each in self.stations if each.differs]


async def ask(questions: Questions, version: int, answers: list[Answer]) -> NodeAnswer:
    """Ask felix of this node about every answer. Raises MuslinError when it does not answer."""
    node, backend, ready, error = "", "", False, ""
    stations: list[Compared] = []
    for number, answer in enumerate(answers):
        packet = answer.explanation.packet
        asked = [each for each in answer.judgements if _asked(each)]
        question = Ask(
            number,
            str(packet.source),
            str(packet.destination),
            packet.kind.protocol,
            packet.kind.source_port,
            packet.kind.destination_port,
            packet.kind.icmp_type,
            packet.kind.icmp_code,
            [_station(each) for each in asked],
        )
        reply = await ask_felix(question, Answered)
        node, backend, ready = reply.node, reply.backend, reply.ready
        error = error or reply.error
        for each, decided in zip(asked, reply.decided, strict=False):
            if each.station.end.node == reply.node:
                stations.append(Compared(answer.packets, each, decided))
    if not stations and not error:
        error = f"nothing of this is decided on node {node}; ask there, or without --live"
    return NodeAnswer(node, backend, ready, stations, error)


def _asked(item: Judgement) -> bool:
    return (
        item.station.end.endpoint is not None
        and item.station.stage != HOST
        and (item.station.ruling.by is not By.FAILSAFE)
    )


def _station(item: Judgement) -> Station:
    station, place = item.station, item.place
    key = station.end.endpoint
    assert key is not None
    return Station(
        key.kind,
        key.namespace,
        key.name,
        station.stage,
        station.ingress,
        "" if place is None else place.table,
        "" if place is None else place.chain,
    )


def as_lines(answer: NodeAnswer) -> Iterator[str]:
    """The node's answer as lines for people."""
    state = "" if answer.ready else ", and has not programmed all that it knows"
    differing = answer.differing
    if differing:
        yield (
            f"*** NODE {answer.node} DIFFERS FROM THE DATASTORE at {len(differing)} of"
            f" {len(answer.stations)} stations: the answer above does not hold there ***"
        )
    yield f"felix on {answer.node} ({answer.backend or 'no rules yet'}){state}:"
    for each in answer.stations:
        station, place = each.judgement.station, each.judgement.place
        what = f"  {each.packets}: {station.direction} of {station.end.title}: "
        differs = each.differs
        yield what + ("DIFFERS" if differs else "felix decides alike, and the kernel has its rules")
        for reason in differs:
            yield f"    {reason}"
        if place is not None and each.decided.stands and each.counted is not None:
            packets, octets = each.counted
            yield f"    {place} has matched {packets} packets, {octets} bytes"


def complaint(answer: NodeAnswer) -> str:
    """What an operator must not overlook; empty where all is as the datastore says."""
    if not answer.differing:
        return answer.error
    first = answer.differing[0]
    return (
        f"node {answer.node} differs from the datastore:"
        f" {first.judgement.station.direction} of {first.judgement.station.end.title}:"
        f" {first.differs[0]}"
    )


def _otherwise(decided: Decided) -> str:
    word = {True: "allowed", False: "denied", None: "not decided"}[decided.allowed]
    policy = ""
    if decided.policy:
        policy = " ".join([decided.policy[0], "/".join(filter(None, decided.policy[1:]))])
    by = ", ".join(filter(None, (decided.by, decided.tier, policy)))
    return f"{word} ({by})"


def as_tree(answer: NodeAnswer) -> dict[str, object]:
    """The node's answer as plain values, for JSON."""
    return {
        "node": answer.node,
        "backend": answer.backend,
        "ready": answer.ready,
        "error": answer.error,
        "stations": [_tree(each) for each in answer.stations],
    }


def _tree(each: Compared) -> dict[str, object]:
    counted = each.counted
    return {
        "packets": each.packets,
        "direction": each.judgement.station.direction,
        "of": each.judgement.station.end.title,
        "stage": each.judgement.station.stage,
        "known": not each.decided.unknown,
        "agrees": each.agrees,
        "allowed": each.decided.allowed,
        "chainStands": each.decided.stands,
        "differs": each.differs,
        "matchedPackets": None if counted is None else counted[0],
        "matchedBytes": None if counted is None else counted[1],
    }
