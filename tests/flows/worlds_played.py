"""The packets of a world, played through felix's joiner on each node and the aggregator's store.

The kernel is played here: each leg's rules tell what `felix.explain.walk` says they match (it is
held against the oracle, and against packets, elsewhere), and conntrack counts what passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from felix.calc.graph import Calculator
from felix.explain.flow import Kind
from felix.explain.flow import Packet as FelixPacket
from felix.explain.matching import Matcher
from felix.explain.walk import By, walk
from felix.flows.facts import CalculatedFacts
from felix.flows.joiner import MOST, Joiner, Lost
from felix.flows.services import ServiceTable
from felix.rules import nflog_prefix
from felix.rules.nflog_prefix import Verdict
from flows.aggregate.store import Outcome, Store, answer_of
from flows.query import FlowQuery, Seen
from flows.record import INTERVAL, Action, Flow, Hit, PolicyKind, Reporter
from libcalico.model import ResourceKey
from tests.felix.flows.packets import connection, key, packet
from tests.flows.worlds_oracle import LENGTH, LENGTH_BACK, Amount, Row
from tests.flows.worlds_sent import INTERVALS, Sent, SentWorld
from tests.support.explaining import world_of

BEGINNING = 1_800_000_000 - 1_800_000_000 % INTERVAL
_STAGED = {
    PolicyKind.STAGED_NETWORK_POLICY: "NetworkPolicy",
    PolicyKind.STAGED_GLOBAL_NETWORK_POLICY: "GlobalNetworkPolicy",
    PolicyKind.CALICO_NETWORK_POLICY: "NetworkPolicy",
    PolicyKind.GLOBAL_NETWORK_POLICY: "GlobalNetworkPolicy",
}


@dataclass
class Losses:
    """What is planted: room for connections at a node, batches that come too late or twice."""

    most: int = MOST
    late: float = 0.0
    twice: float = 0.0
    planted: Counter[str] = field(default_factory=Counter)


class PlayedNode:
    """One felix: its calculation, its joiner, and what its kernel has."""

    def __init__(self, name: str, world: SentWorld, most: int) -> None:
        self.name, self.lost = name, Lost()
        calc = Calculator(name)
        calc.in_sync = True
        for each, value in world_of(world.documents).objects.items():
            calc.update(each, value)
        calc.policy.flush()
        self.engine, self.matcher = calc.policy, Matcher(calc.policy)
        # Two seconds a look: there is always time for a walk.
        seconds = count(step=2.0)
        facts = CalculatedFacts(calc, ServiceTable(), self.lost, lambda: next(seconds))
        self.joiner = Joiner(facts, self.lost, most=most)
        self.endpoints = {
            f"{each.namespace}/{value.spec.pod}": each
            for each, value in world_of(world.documents).of("WorkloadEndpoint")
            if value.spec.node == name
        }

    def prefixes(self, endpoint: ResourceKey, sent: Sent, *, ingress: bool) -> Iterator[str]:
        """What the rules of an endpoint tell of a first packet, in their order."""
        policy = self.engine.endpoint(endpoint)
        assert policy is not None
        flow = sent.flow
        kind = Kind(flow.protocol, flow.destination_port, flow.source_port, flow.icmp_type)
        asked = FelixPacket(*sent.addresses, kind)
        ruling = walk(policy.tiers, policy.profiles, asked, self.matcher, ingress=ingress)
        passed = {s.tier: s for s in ruling.steps if s.did == "pass" and s.tier}
        for tier in policy.tiers:
            if tier.name == ruling.tier:
                break
            step = passed.get(tier.name)
            if step is not None:
                assert step.rule is not None
                yield nflog_prefix.by_rule(
                    step.policy, step.rule, ingress=ingress, verdict=Verdict.PASSED
                )
            elif tier.ingress if ingress else tier.egress:
                yield nflog_prefix.by_tier(tier.name, ingress=ingress, verdict=Verdict.PASSED)
        verdict = Verdict.ALLOWED if ruling.allowed else Verdict.DENIED
        if ruling.by is By.TIER_END:
            yield nflog_prefix.by_tier(ruling.tier, ingress=ingress, verdict=verdict)
        elif ruling.policy is None:
            yield nflog_prefix.by_profiles(ingress=ingress)
        else:
            yield nflog_prefix.by_rule(
                ruling.policy, ruling.rule or 0, ingress=ingress, verdict=verdict
            )

    def tell(self, sent: Sent, now: float, *, ingress: bool) -> bool:
        """Rules tell of a first packet; whether they let it pass."""
        flow = sent.flow
        title = flow.destination if ingress else flow.source
        endpoint = self.endpoints.get(title)
        if endpoint is None:
            return True
        source, destination = map(str, sent.addresses)
        payload = packet(
            source, destination, flow.destination_port, flow.source_port, flow.protocol, LENGTH,
        )  # fmt: skip
        prefix = ""
        for prefix in self.prefixes(endpoint, sent, ingress=ingress):
            self.joiner.hear(payload, prefix, now, ingress=ingress)
        return not prefix.startswith("D")

    def count(self, sent: Sent, interval: int, packets: int, back: int) -> None:
        """Conntrack's counters of a connection at the end of an interval; it may end there."""
        flow = sent.flow
        ports = (flow.destination_port, flow.source_port)
        if flow.protocol not in (6, 17):
            ports = (0, flow.source_port if flow.protocol in (1, 58) else 0)
        source, destination = map(str, sent.addresses)
        one = key(source, destination, *ports, flow.protocol)
        counted = connection(one, packets, packets * LENGTH, back, back * LENGTH_BACK)
        if interval == sent.start + sent.lasts:
            self.joiner.ended(counted)
        else:
            self.joiner.counted(counted)


class Played:
    """A world played to its end: what the aggregator lists, and what it and the nodes lost."""

    def __init__(self, world: SentWorld, seed: object, losses: Losses | None = None) -> None:
        self.losses = losses or Losses()
        self._random = Random(f"played/{seed}")
        self._world = world
        self.nodes = {
            name: PlayedNode(name, world, self.losses.most) for name in ("node1", "node2")
        }
        self.store = Store(BEGINNING)
        self._live: list[Sent] = []
        self._passing: dict[Sent, bool] = {}
        for interval in range(INTERVALS):
            self._interval(interval)

    def _interval(self, interval: int) -> None:
        now = float(interval * INTERVAL)
        for sent in (one for one in self._world.sent if one.start == interval):
            self._passing[sent] = self._first(sent, now)
            self._live.append(sent)
        for sent in list(self._live):
            self._count(sent, interval)
            if interval == sent.start + sent.lasts:
                self._live.remove(sent)
        start = BEGINNING + interval * INTERVAL
        for node in self.nodes.values():
            for _ in node.joiner.all_counted(now + INTERVAL):
                pass
            for batch in node.joiner.flushing(start, start + INTERVAL):
                self._deliver(node.name, batch, start + INTERVAL)

    def _ways(self, sent: Sent) -> list[tuple[PlayedNode, bool]]:
        """The legs of a connection in the order of its way: node, and whether it is ingress."""
        nodes, ends = self._world.nodes, (sent.flow.source, sent.flow.destination)
        return [
            (self.nodes[nodes[title]], ingress)
            for title, ingress in zip(ends, (False, True), strict=True)
            if title in nodes
        ]

    def _first(self, sent: Sent, now: float) -> bool:
        """The first packet, and where it is dropped the tries after it."""
        kept = False
        for _ in range(sent.tries):
            for node, ingress in self._ways(sent):
                # Behind the first packet a node that let it pass has it as a connection.
                if kept and not ingress:
                    continue
                if not node.tell(sent, now, ingress=ingress):
                    break
                kept = kept or self._has(sent, node)
            else:
                return True
        return False

    def _has(self, sent: Sent, node: PlayedNode) -> bool:
        """Whether a node's kernel keeps a connection that its far end drops."""
        ways = self._ways(sent)
        return len(ways) == 2 and ways[0][0] is node and ways[1][0] is not node

    def _count(self, sent: Sent, interval: int) -> None:
        done = interval - sent.start + 1
        for node, _ in {id(way[0]): way for way in self._ways(sent)}.values():
            if self._passing[sent]:
                node.count(sent, interval, sent.packets * done, sent.back * done)
            elif self._has(sent, node) and self._allowed_at_source(sent, node):
                node.count(sent, interval, sent.tries, 0)

    def _allowed_at_source(self, sent: Sent, node: PlayedNode) -> bool:
        endpoint = node.endpoints[sent.flow.source]
        return not list(node.prefixes(endpoint, sent, ingress=False))[-1].startswith("D")

    def _deliver(self, node: str, batch: list[Flow], now: int) -> None:
        for flow in batch:
            if self._random.random() < self.losses.late:
                self.losses.planted["late"] += 1
                late = Flow(flow.key, 0, INTERVAL, flow.counts)
                assert self.store.receive(late, node, now) is Outcome.LEFT_OUT
                continue
            assert self.store.receive(flow, node, now) is Outcome.COUNTED
            if self._random.random() < self.losses.twice:
                self.losses.planted["twice"] += 1
                assert self.store.receive(flow, node, now) is Outcome.REPEATED

    def listed(self) -> list[Seen]:
        """Everything that the aggregator lists."""
        return list(answer_of(self.store.list(FlowQuery())).flows)


def row_of(seen: Seen) -> tuple[Row, Amount]:
    """A listed flow in the oracle's words."""
    flow = seen.flow
    one, counts = flow.key, flow.counts
    outward = one.reporter is Reporter.SOURCE
    row = Row(
        (one.source.kind.name, one.source.namespace, one.source.name),
        (one.destination.kind.name, one.destination.namespace, one.destination.name),
        one.port,
        one.protocol,
        "source" if outward else "destination",
        one.action is Action.ALLOW,
        *decider(one.trace.enforced)[1:],
        decider(one.trace.pending),
    )
    into = (counts.packets_in, counts.bytes_in)
    out = (counts.packets_out, counts.bytes_out)
    there, back = (out, into) if outward else (into, out)
    return row, Amount(*there, *back, counts.started, counts.completed, counts.live)


def decider(trace: tuple[Hit, ...]) -> tuple[bool, str, int | None]:
    """Who decided by a trace, as the oracle of policies says it."""
    *before, last = trace
    assert all(hit.action is Action.PASS for hit in before)
    assert [hit.policy_index for hit in trace] == list(range(len(trace)))
    allowed = last.action is Action.ALLOW
    if last.kind is PolicyKind.END_OF_TIER:
        return allowed, f"end of tier {last.tier}", None
    if last.kind is PolicyKind.PROFILE:
        if last.name == "__NO_MATCH__":
            return allowed, "end of profiles", None
        if last.name == "nobody-defined-it":
            return allowed, f"profile {last.name} is missing", None
        return allowed, f"profile {last.name}", last.rule_index
    return allowed, f"{last.name}/{last.namespace}/{_STAGED[last.kind]}", last.rule_index
