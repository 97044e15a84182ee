"""Traces that were recorded in a lab, and small ones made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calicoctl.tracing.evidence import Evidence, Traced, evidence_of, told_once
from calicoctl.tracing.naming import Names
from calicoctl.tracing.story import Story, tell
from libcalico.local import packet_trace
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
    Link,
    Packet,
    Probe,
    Question,
    Ready,
    Route,
    Rule,
)

FOLDER = Path(__file__).with_name("traces")
CLIENT, SERVER, HOP = "10.0.1.1", "10.0.2.1", "192.0.2.2"
ASKED = Question(CLIENT, SERVER, 6, 80, "calic", "")
WAY_THERE = Route(SERVER, "10.0.2.0/26", "unicast", HOP, "eth0", 109, neighbour="reachable")
WAY_BACK = Route(CLIENT, "10.0.1.1/32", "unicast", "", "calic", 109)
SYN = Head(CLIENT, SERVER, 6, 1234, 80, "SYN", ttl=64, length=60, same="syn")
SYN_ACK = Head(SERVER, CLIENT, 6, 80, 1234, "SYN+ACK", ttl=63, length=60, same="synack")
RESET = Head(SERVER, CLIENT, 6, 80, 1234, "ACK+RST", ttl=63, length=40, same="rst")


def recorded(name: str) -> Traced:
    """Both nodes' evidence of a recorded trace."""
    nodes = []
    for node in ("node1", "node2"):
        path = FOLDER / f"{name}.{node}.jsonl"
        with path.open("rb") as lines:
            nodes.append(evidence_of(packet_trace.decode_all(lines, path.name), path.name))
    return Traced(nodes[0].ready.question, told_once(nodes), "node1", "node2")


def icmp(kind: int, code: int, sender: str, about: Head = SYN, mtu: int = 0) -> Head:
    """An error about a packet, to the client."""
    return Head(sender, CLIENT, 1, icmp_type=kind, icmp_code=code, length=88, mtu=mtu,
                same=f"error{kind}.{code}", inner=about)  # fmt: skip


def at(time: int, place: str, kind: str, interface: str, head: Head = SYN, **more: str) -> Packet:
    """A packet somewhere."""
    return Packet(time * 1000, place, kind, interface, head, f"skb{time}", **more)


def rule(chain: str, number: int, verdict: str, *, comment: str = "", text: str = "") -> Rule:
    """A rule that the SYN met."""
    return Rule(1, 7, "ip", "filter", chain, "rule", verdict, "", number, comment, text, same="syn")


LEAVES = (
    at(1, SOURCE, SENT, "eth0"),
    at(3, NODE, RECEIVED, "calic"),
    at(10, NODE, SENT, "eth0"),
)
"""The way through the client's node."""
ARRIVES = (
    at(20, NODE, RECEIVED, "eth0"),
    at(25, NODE, SENT, "calis"),
    at(26, DESTINATION, RECEIVED, "eth0"),
)
"""The way through the server's."""


def node(
    name: str, lines: Sequence[Line], facts: Facts | None = None, probe: str = "", boot: str = "b"
) -> Evidence:
    """What a node told."""
    told: list[Line] = [Ready(name, boot, ASKED, "nftables"), *lines]
    if probe:
        told.append(Probe(probe, 1.0))
    told += [facts or Facts(WAY_THERE, WAY_BACK), End()]
    return evidence_of(told, name)


def two(
    first: Sequence[Line],
    second: Sequence[Line] = (),
    *,
    facts: Facts | None = None,
    facts2: Facts | None = None,
    probe: str = "timeout",
) -> Story:
    """The story of a client on node1 and a server on node2."""
    nodes = (node("node1", first, facts, probe), node("node2", second, facts2))
    return tell(Traced(ASKED, told_once(nodes), "node1", "node2"), Names(None, 4))


def facts(
    forward: Route | None = WAY_THERE, back: Route | None = WAY_BACK, links: Sequence[Link] = (),
    counters: dict[str, int] | None = None, listening: bool | None = None,
) -> Facts:  # fmt: skip
    """Facts of a node."""
    return Facts(forward, back, list(links), counters=counters or {}, listening=listening)


__all__ = ["DROPPED", "FOLDER", "icmp", "node", "recorded", "rule", "two"]
