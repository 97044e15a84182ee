"""What an aggregator must list of a world: written from the documents, with none of its parts.

A connection is told at the end of its source and at that of its destination, where they are pods:
what was sent there, what decided, and what would decide if staged policies were in force.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from ipaddress import ip_network
from typing import Any

from tests.flows.worlds_sent import Document, Sent, SentWorld
from tests.policy_random.oracle import Decision, Flow, Oracle, Packet
from tests.policy_recommend.seeing import NAMES

PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
LENGTH, LENGTH_BACK = 60, 52
"""Bytes of a packet there, and of an answer."""
PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))


@dataclass(frozen=True)
class Row:
    """What a listed flow is of; deciders as the oracle of policies says them."""

    source: tuple[str, str, str]
    destination: tuple[str, str, str]
    port: int
    protocol: str
    reporter: str
    allowed: bool
    by: str
    rule: int | None
    would_be: tuple[bool, str, int | None]


@dataclass
class Amount:
    """What is counted of it, there and back."""

    packets: int = 0
    bytes: int = 0
    packets_back: int = 0
    bytes_back: int = 0
    started: int = 0
    completed: int = 0
    live: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Truth:
    """The rows of a world."""

    def __init__(self, world: SentWorld) -> None:
        self._world = world
        self._now = Oracle(world.documents)
        self._then = Oracle(staged_in_force(world.documents))
        self._names = {title: _workload(title) for title in world.nodes}

    def verdicts(self, sent: Sent) -> dict[str, Decision]:
        """What decides, by the end that tells of it; the destination only of what reaches it."""
        found = {}
        if sent.flow.source in self._world.nodes:
            found["source"] = self._decision(self._now, sent, "source")
            if not found["source"].allowed:
                return found
        if sent.flow.destination in self._world.nodes:
            found["destination"] = self._decision(self._now, sent, "destination")
        return found

    def rows(self) -> dict[Row, Amount]:
        """Everything that must be listed."""
        rows: dict[Row, Amount] = defaultdict(Amount)
        for sent in self._world.sent:
            verdicts = self.verdicts(sent)
            passed = all(one.allowed for one in verdicts.values())
            for reporter, decision in verdicts.items():
                amount = rows[self._row(sent, reporter, decision)]
                amount.started += 1
                amount.completed += 1
                there = sent.packets * (sent.lasts + 1) if passed else sent.tries
                back = sent.back * (sent.lasts + 1) if passed else 0
                amount.packets += there
                amount.bytes += there * LENGTH
                amount.packets_back += back
                amount.bytes_back += back * LENGTH_BACK
        return dict(rows)

    def _row(self, sent: Sent, reporter: str, decision: Decision) -> Row:
        flow, then = sent.flow, self._decision(self._then, sent, reporter)
        return Row(
            self._end(flow.source, sent.addresses[0]),
            self._end(flow.destination, sent.addresses[1]),
            flow.destination_port,
            PROTOCOLS.get(flow.protocol, str(flow.protocol)),
            reporter,
            decision.allowed,
            decision.by,
            decision.rule,
            (then.allowed, then.by, then.rule),
        )

    @staticmethod
    def _decision(oracle: Oracle, sent: Sent, reporter: str) -> Decision:
        packet = Packet(sent.flow, *sent.addresses)
        flow: Flow = sent.flow
        if reporter == "source":
            return oracle.direction(flow.source, packet, "egress")
        return oracle.direction(flow.destination, packet, "ingress")

    def _end(self, title: str, address: Any) -> tuple[str, str, str]:
        known = self._names.get(title)
        if known is not None:
            return known
        sets = []
        for document in self._world.documents:
            if document["kind"] not in ("NetworkSet", "GlobalNetworkSet"):
                continue
            for text in document["spec"].get("nets") or []:
                network = ip_network(text, strict=False)
                if address in network:
                    metadata = document["metadata"]
                    space = metadata.get("namespace", "")
                    # Everything is two halves: a set of networks cannot say it otherwise.
                    length = max(network.prefixlen, 1)
                    order = f"{document['kind']}({space + '/' if space else ''}{metadata['name']})"
                    sets.append((-length, order, metadata["name"], space))
        if sets:
            _, _, name, space = min(sets)
            return ("NETWORK_SET", space, name)
        private = any(address in network for network in PRIVATE)
        return ("NETWORK", "", "pvt" if private else "pub")


def _workload(title: str) -> tuple[str, str, str]:
    namespace, _, name = title.partition("/")
    return ("WORKLOAD", namespace, NAMES[name] if name.startswith("front") else name)


def staged_in_force(documents: list[Document]) -> list[Document]:
    """The documents as if every staged policy had taken the place of its target."""
    found = {_key(d): d for d in documents if not d["kind"].startswith("Staged")}
    for document in documents:
        if not document["kind"].startswith("Staged"):
            continue
        spec = dict(document["spec"])
        action = spec.pop("stagedAction", None) or "Set"
        target = {**document, "kind": document["kind"].removeprefix("Staged"), "spec": spec}
        if action == "Set":
            found[_key(target)] = target
        elif action == "Delete":
            found.pop(_key(target), None)
    return list(found.values())


def _key(document: Document) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return (document["kind"], metadata.get("namespace", ""), metadata["name"])
