"""Flows of random worlds, as an aggregator would tell them."""

from __future__ import annotations

from collections.abc import Iterable

from felix.explain.flow import protocol_name
from flows.record import Action, End, EndKind, Flow, Key, Reporter
from tests.policy_random.generator import Pod
from tests.policy_random.oracle import Flow as Packet
from tests.policy_random.oracle import Oracle

KINDS = ("front-6c9f7d-b2c4d", "front-6c9f7d-x5z7k", "db-0", "cron")
"""Two pods of one controller, one of a stateful set, one alone."""
NAMES = {"front-6c9f7d-b2c4d": "front-6c9f7d-*", "front-6c9f7d-x5z7k": "front-6c9f7d-*",
         "db-0": "db-*", "cron": "cron"}  # fmt: skip


def pods(namespaces: Iterable[str] = ("alpha", "beta", "gamma-x")) -> list[Pod]:
    """Twelve pods, four kinds in each namespace."""
    found = []
    for number, name in enumerate(KINDS):
        for place, namespace in enumerate(namespaces):
            i = 3 * number + place
            node = f"node{i % 2 + 1}"
            addresses = (f"10.65.{node[4:]}.{i + 6}", f"fd65::{node[4:]}:{i + 6:x}")
            found.append(Pod(namespace, name, node, addresses))
    return found


def end_of(title: str) -> End:
    """The end of a flow that a pod is."""
    namespace, _, name = title.partition("/")
    return End(EndKind.WORKLOAD, NAMES.get(name, name), namespace)


def told(packet: Packet, oracle: Oracle) -> list[Flow]:
    """What both ends tell of a packet: the destination of what reaches it alone."""
    flows = []
    for reporter, decision in (
        (Reporter.SOURCE, oracle.egress(packet)),
        (Reporter.DESTINATION, oracle.ingress(packet)),
    ):
        action = Action.ALLOW if decision.allowed else Action.DENY
        key = Key(
            end_of(packet.source), end_of(packet.destination), packet.destination_port,
            protocol_name(packet.protocol).removeprefix("protocol "), reporter, action,
        )  # fmt: skip
        flows.append(Flow(key, 0, 15))
        if not decision.allowed:
            break
    return flows
