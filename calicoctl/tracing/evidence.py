"""The lines of one node, sorted by what they are about, and packets by where they went. Pure.

Tested in tests/calicoctl/test_tracing_story.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from libcalico.errors import MuslinError
from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    RECEIVED,
    SENT,
    SOURCE,
    End,
    Facts,
    Head,
    Line,
    Packet,
    Probe,
    Question,
    Ready,
    Rule,
)


@dataclass
class Evidence:
    """All that one node told."""

    ready: Ready
    packets: list[Packet] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    probe: Probe | None = None
    end: End | None = None

    @property
    def node(self) -> str:
        """Its name."""
        return self.ready.node

    @cached_property
    def _seen(self) -> dict[str, list[Packet]]:
        """Where each packet was seen, by `same`, in order of time. The evidence is whole by now."""
        seen: dict[str, list[Packet]] = {}
        for each in sorted(self.packets, key=lambda packet: packet.time):
            seen.setdefault(each.head.same, []).append(each)
        return seen

    def last_placed(self, same: str, until: int) -> int:
        """The last time until then at which one packet was seen in a known place; 0: at none."""
        seen = self._seen.get(same, ())
        return max((each.time for each in seen if each.place and each.time <= until), default=0)

    def way(self, same: str) -> list[Packet]:
        """Where one packet was, in order: each place once, and its first drop last."""
        way: list[Packet] = []
        seen: set[tuple[str, str, str]] = set()
        drop: Packet | None = None
        for each in self._seen.get(same, ()):
            if each.kind == DROPPED:
                drop = drop or each
                continue
            place = (each.place, each.kind, each.interface)
            if place not in seen:
                seen.add(place)
                way.append(each)
        return [*way, *([] if drop is None else [drop])]

    def met(self, same: str) -> list[Rule]:
        """The rules that one packet met, the first time that it came."""
        met: list[Rule] = []
        first: int | None = None
        for rule in self.rules:
            if rule.same == same and rule.kind != "counted":
                first = rule.packet if first is None else first
                if rule.packet == first:
                    met.append(rule)
        return met

    def heads(self) -> Iterator[tuple[int, Head]]:
        """Each packet once, by its first time; then those that only rules tell of."""
        seen: set[str] = set()
        timed = [(each.time, each.head) for each in self.packets]
        timed.sort(key=lambda each: each[0])
        last = timed[-1][0] if timed else 0
        # Of an error only the first bytes are told, which do not say what it is about.
        asked = self.ready.question.protocol
        shown = [rule.head for rule in self.rules if rule.head is not None]
        by_rules = [(last, head) for head in shown if head.protocol == asked]
        for time, head in (*timed, *by_rules):
            if head.same not in seen:
                seen.add(head.same)
                yield time, head


def evidence_of(lines: Iterable[Line], where: str) -> Evidence:
    """The lines of one node. Raises MuslinError where the first is not `ready`."""
    evidence: Evidence | None = None
    for line in lines:
        if isinstance(line, Ready):
            if evidence is not None:
                raise MuslinError(f"{where}: two traces in one; give each a file of its own")
            evidence = Evidence(line)
        elif evidence is None:
            raise MuslinError(f"{where}: a node's trace begins with its line `ready`")
        elif isinstance(line, Packet):
            evidence.packets.append(line)
        elif isinstance(line, Rule):
            evidence.rules.append(line)
        elif isinstance(line, Facts):
            evidence.facts = line
        elif isinstance(line, Probe):
            evidence.probe = line
        else:
            evidence.end = line
    if evidence is None:
        raise MuslinError(f"{where}: it holds no trace")
    return evidence


@dataclass(frozen=True)
class Traced:
    """The evidence of all nodes, the source's node first."""

    question: Question
    nodes: tuple[Evidence, ...]
    source_node: str = ""
    destination_node: str = ""

    @property
    def probe(self) -> Probe | None:
        """What came of the attempt that was sent."""
        return next((each.probe for each in self.nodes if each.probe is not None), None)

    def of(self, node: str) -> Evidence | None:
        """The evidence of a node."""
        return next((each for each in self.nodes if each.node == node), None)

    def forwards(self) -> list[Head]:
        """What the source sent, in order."""
        return [head for head in self._heads() if head.source == self.question.source and (
            head.inner is None)]  # fmt: skip

    def answers(self) -> list[Head]:
        """What came back: answers, resets, errors of anything on the way."""
        return [
            head
            for head in self._heads()
            if head.source != self.question.source
            and self.question.source in (head.destination, head.inner and head.inner.source)
        ]

    def _heads(self) -> list[Head]:
        evidence: dict[str, Head] = {}
        for node in self.nodes:
            for _, head in node.heads():
                evidence.setdefault(head.same, head)
        return list(evidence.values())

    def arrived(self, head: Head) -> bool:
        """Whether a packet came to the end that it was for, as far as the nodes see."""
        for node in self.nodes:
            for each in node.way(head.same):
                forward = head.source == self.question.source and head.inner is None
                if each.kind == RECEIVED and each.place == (DESTINATION if forward else SOURCE):
                    return True
                last = self.nodes[-1].node if forward else self.nodes[0].node
                end = self.destination_node if forward else self.source_node
                if not end and node.node == last and each.kind == SENT and each.place == NODE:
                    return True
        return False

    @property
    def succeeded(self) -> bool:
        """Whether the attempt did what it was for."""
        if self.probe is not None:
            return self.probe.result in ("connected", "answered")
        return any(self.arrived(h) and not broken(h) for h in self.answers())


def told_once(nodes: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """The evidence with each drop that two nodes of one machine report left to one of them.

    The kernel may have forgotten the device of a dropped packet. It belongs to the node that saw
    the packet last before.
    """
    latest: dict[tuple[str, int, str], tuple[int, str]] = {}
    for node in nodes:
        for each in node.packets:
            if each.place:
                continue
            before = node.last_placed(each.head.same, each.time)
            key = (node.ready.boot, each.time, each.skb)
            latest[key] = max(latest.get(key, (-1, "")), (before, node.node))
    return tuple(
        replace(
            node,
            packets=[
                p
                for p in node.packets
                if p.place or latest[node.ready.boot, p.time, p.skb][1] == node.node
            ],
        )
        for node in nodes
    )


def broken(head: Head) -> bool:
    """Whether an answer says no: a reset, or an error of ICMP."""
    return head.inner is not None or "RST" in head.flags
