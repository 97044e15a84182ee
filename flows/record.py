"""A flow as a value: connections of one kind between two ends, and what decided about them.

Meanings and numbers are Goldmane's (`flows/goldmane.proto`), so that felix, the aggregator, its
clients and exports share one form. Nothing here knows protobuf or gRPC: `flows/messages.py` does.

The key says what makes two observations the same flow. Labels, times and counts are no part of it:
adding two flows of one key keeps the labels that both have.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

INTERVAL = 15
"""Seconds of a bucket: a flow starts and ends at multiples of it, seen from 1970."""
PUBLIC, PRIVATE = "pub", "pvt"
"""The names of ends that nothing in the cluster names (kind NETWORK)."""
PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""The networks whose addresses are PRIVATE: Goldmane's."""
NONE = "-"
"""What stands on the wire where an end has no namespace or there is no service; here it is ""."""


class EndKind(IntEnum):
    """What stands at an end of a flow."""

    UNSPECIFIED = 0
    WORKLOAD = 1
    HOST = 2
    NETWORK_SET = 3
    NETWORK = 4


class Action(IntEnum):
    """What a rule did, and what became of the flow."""

    UNSPECIFIED = 0
    ALLOW = 1
    DENY = 2
    PASS = 3


class Reporter(IntEnum):
    """At which end the flow was seen."""

    UNSPECIFIED = 0
    SOURCE = 1
    DESTINATION = 2


class PolicyKind(IntEnum):
    """The kind of object that a hit names."""

    UNSPECIFIED = 0
    CALICO_NETWORK_POLICY = 1
    GLOBAL_NETWORK_POLICY = 2
    STAGED_NETWORK_POLICY = 3
    STAGED_GLOBAL_NETWORK_POLICY = 4
    STAGED_KUBERNETES_NETWORK_POLICY = 5
    KUBERNETES_NETWORK_POLICY = 6
    PROFILE = 9
    END_OF_TIER = 10
    CLUSTER_NETWORK_POLICY = 11


class End(msgspec.Struct, frozen=True, gc=False):
    """One end: for a workload `name` is the aggregated name (`web-7d4b9-*`), for a network
    PUBLIC or PRIVATE."""

    kind: EndKind
    name: str
    namespace: str = ""


class Service(msgspec.Struct, frozen=True, gc=False):
    """The service that was addressed; empty where there was none. `port` is the service's."""

    name: str = ""
    namespace: str = ""
    port_name: str = ""
    port: int = 0


class Hit(msgspec.Struct, frozen=True):
    """A rule that acted: `policy_index` counts the hits of a trace, `rule_index` the rules of the
    policy, both from 0. At the end of a tier `trigger` is the policy that selected the end."""

    kind: PolicyKind
    tier: str
    namespace: str
    name: str
    action: Action
    policy_index: int = 0
    rule_index: int = 0
    trigger: Hit | None = None


class Trace(msgspec.Struct, frozen=True):
    """Every rule that acted, in order; `pending` as if staged policies were enforced."""

    enforced: tuple[Hit, ...] = ()
    pending: tuple[Hit, ...] = ()


class Key(msgspec.Struct, frozen=True):
    """What makes two observations the same flow. `protocol` is "tcp", "udp", "icmp" and so on."""

    source: End
    destination: End
    port: int
    protocol: str
    reporter: Reporter
    action: Action
    service: Service = Service()
    trace: Trace = Trace()


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What was counted. `in` is towards the reporter's end as Goldmane has it: packets from source
    to destination are "in" at the destination and "out" at the source. `live` is a state at the
    end of the flow's time, the others are sums."""

    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    started: int = 0
    completed: int = 0
    live: int = 0


class Flow(msgspec.Struct, frozen=True):
    """A key in a span of time: `start` included, `end` not, seconds since 1970. Labels are
    `key=value`, sorted."""

    key: Key
    start: int
    end: int
    counts: Counts = Counts()
    source_labels: tuple[str, ...] = ()
    destination_labels: tuple[str, ...] = ()


def common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The labels that both have, sorted as they are."""
    if one == other:
        return one
    kept = frozenset(other)
    return tuple(label for label in one if label in kept)


def deciding(flow: Flow) -> Hit | None:
    """The enforced hit that decided: the last one that did what became of the flow."""
    for hit in reversed(flow.key.trace.enforced):
        if hit.action == flow.key.action:
            return hit
    return None
