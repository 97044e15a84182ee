"""Random worlds of connections: policies, staged policies, pods on two nodes, and what was sent.

Nothing of flow logs is used here but packets: `worlds_oracle` says what must be listed, and
`worlds_played` plays the packets through felix's joiner and the aggregator's store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random
from typing import Any

from tests.policy_random import flows
from tests.policy_random.generator import Pod, make_world
from tests.policy_random.oracle import Flow
from tests.policy_recommend.seeing import pods

PODS = pods()
INTERVALS = 4
OUTSIDE = ("192.0.2.7", "192.168.7.7", "fd99::7", "2001:db8::7")
"""Addresses of no pod: public and private ones of both families."""
Address = IPv4Address | IPv6Address
Document = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A connection, or an attempt: it begins in interval `start` and lasts `lasts` more.

    `source`, `destination`: titles of pods, or addresses of no pod. `tries`: how often its first
    packet is sent where nothing answers; `packets`, `back`: packets of each interval where it does.
    """

    flow: Flow
    addresses: tuple[Address, Address]
    start: int
    lasts: int
    tries: int
    packets: int
    back: int


@dataclass(frozen=True)
class SentWorld:
    """Documents, and connections in the order in which they begin."""

    documents: list[Document]
    sent: list[Sent]
    nodes: dict[str, str]
    """The node of each pod, by title."""


def sent_world(seed: int, number: int, connections: int) -> SentWorld:
    """World `number` of a seed."""
    random = Random(f"sent/{seed}/{number}")
    made = make_world(seed, number, PODS, policies=random.choice((3, 8, 20)))
    documents = [_named(d) for d in made.documents if d["kind"] != "HostEndpoint"]
    sent: dict[object, Sent] = {}
    for flow in flows.sample(PODS, connections, (seed, number)):
        one = _sent(_outside(_echo(flow), random), random)
        which = (one.addresses, flow.protocol, flow.source_port, flow.destination_port)
        sent.setdefault(which, one)
    ordered = sorted(sent.values(), key=lambda one: one.start)
    return SentWorld(documents, ordered, {pod.title: pod.node for pod in PODS})


def _named(document: Document) -> Document:
    """Endpoints by the names that Calico gives them: dashes inside of words are doubled."""
    if document["kind"] != "WorkloadEndpoint":
        return document
    spec, metadata = document["spec"], document["metadata"]
    name = f"{spec['node']}-k8s-{spec['pod'].replace('-', '--')}-eth0"
    return {**document, "metadata": {**metadata, "name": name}}


def _echo(flow: Flow) -> Flow:
    """ICMP begins with an echo request, whose identifier is no port."""
    echo = {1: 8, 58: 128}.get(flow.protocol)
    return flow if echo is None else replace(flow, icmp_type=echo, icmp_code=0)


def _outside(flow: Flow, random: Random) -> Flow:
    """Now and then one end is no pod."""
    able = [text for text in OUTSIDE if ip_address(text).version == flow.version]
    lot = random.random()
    if lot < 0.1:
        return replace(flow, source=random.choice(able))
    if lot < 0.2:
        return replace(flow, destination=random.choice(able))
    return flow


def _sent(flow: Flow, random: Random) -> Sent:
    start = random.randrange(INTERVALS)
    return Sent(
        flow,
        (address_of(flow.source, flow.version), address_of(flow.destination, flow.version)),
        start,
        random.randrange(INTERVALS - start),
        random.randint(1, 3),
        random.randint(1, 9),
        random.randint(0, 9),
    )


_BY_TITLE: dict[str, Pod] = {pod.title: pod for pod in PODS}


def address_of(end: str, version: int) -> Address:
    """The address of a pod, or the one that it is."""
    pod = _BY_TITLE.get(end)
    if pod is None:
        return ip_address(end)
    return next(a for a in map(ip_address, pod.addresses) if a.version == version)
