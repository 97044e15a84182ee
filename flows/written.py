"""A flow as JSON, for people and programs: of exports and of `calicoctl flows -o json`.

The members are Goldmane's fields, flat; numbers of enumerations are written by their names:

    {"start_time": 1800000000, "end_time": 1800000015, "source_type": "WorkloadEndpoint",
     "source_namespace": "shop", "source_name": "web-*", ..., "action": "Deny",
     "policies": {"enforced": [{"kind": "NetworkPolicy", "name": "db", "action": "Deny", ...}]}}
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import msgspec

from flows.record import (
    Action,
    Counts,
    End,
    EndKind,
    Flow,
    Hit,
    Key,
    PolicyKind,
    Reporter,
    Service,
    Trace,
)
from libcalico.errors import NO_DOCUMENT, InvalidValue

_Number = TypeVar("_Number", bound=IntEnum)

KINDS = {
    EndKind.UNSPECIFIED: "EndpointTypeUnspecified",
    EndKind.WORKLOAD: "WorkloadEndpoint",
    EndKind.HOST: "HostEndpoint",
    EndKind.NETWORK_SET: "NetworkSet",
    EndKind.NETWORK: "Network",
}
ACTIONS = {
    Action.UNSPECIFIED: "ActionUnspecified",
    Action.ALLOW: "Allow",
    Action.DENY: "Deny",
    Action.PASS: "Pass",
}
REPORTERS = {
    Reporter.UNSPECIFIED: "ReporterUnspecified",
    Reporter.SOURCE: "Src",
    Reporter.DESTINATION: "Dst",
}
POLICY_KINDS = {
    PolicyKind.UNSPECIFIED: "KindUnspecified",
    PolicyKind.CALICO_NETWORK_POLICY: "CalicoNetworkPolicy",
    PolicyKind.GLOBAL_NETWORK_POLICY: "GlobalNetworkPolicy",
    PolicyKind.STAGED_NETWORK_POLICY: "StagedNetworkPolicy",
    PolicyKind.STAGED_GLOBAL_NETWORK_POLICY: "StagedGlobalNetworkPolicy",
    PolicyKind.STAGED_KUBERNETES_NETWORK_POLICY: "StagedKubernetesNetworkPolicy",
    PolicyKind.KUBERNETES_NETWORK_POLICY: "NetworkPolicy",
    PolicyKind.PROFILE: "Profile",
    PolicyKind.END_OF_TIER: "EndOfTier",
    PolicyKind.CLUSTER_NETWORK_POLICY: "ClusterNetworkPolicy",
}
"""Names as Goldmane's enumerations have them."""


class WrittenHit(msgspec.Struct, omit_defaults=True):
    """A hit of the trace."""

    kind: str
    name: str = ""
    namespace: str = ""
    tier: str = ""
    action: str = ""
    policy_index: int = 0
    rule_index: int = 0
    trigger: WrittenHit | None = None


class WrittenTrace(msgspec.Struct):
    """The trace."""

    enforced: list[WrittenHit] = []
    pending: list[WrittenHit] = []


class WrittenFlow(msgspec.Struct):
    """A flow; times in seconds since 1970."""

    start_time: int
    end_time: int
    source_type: str
    source_namespace: str
    source_name: str
    dest_type: str
    dest_namespace: str
    dest_name: str
    dest_port: int
    proto: str
    reporter: str
    action: str
    source_labels: list[str] = []
    dest_labels: list[str] = []
    dest_service_namespace: str = ""
    dest_service_name: str = ""
    dest_service_port_name: str = ""
    dest_service_port: int = 0
    policies: WrittenTrace = msgspec.field(default_factory=WrittenTrace)
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    num_connections_started: int = 0
    num_connections_completed: int = 0
    num_connections_live: int = 0


def written(flow: Flow) -> WrittenFlow:
    """A flow in the form that is written: for `msgspec.json.encode`, or `msgspec.to_builtins`."""
    key, counts = flow.key, flow.counts
    return WrittenFlow(
        flow.start,
        flow.end,
        KINDS[key.source.kind],
        key.source.namespace,
        key.source.name,
        KINDS[key.destination.kind],
        key.destination.namespace,
        key.destination.name,
        key.port,
        key.protocol,
        REPORTERS[key.reporter],
        ACTIONS[key.action],
        list(flow.source_labels),
        list(flow.destination_labels),
        key.service.namespace,
        key.service.name,
        key.service.port_name,
        key.service.port,
        WrittenTrace(list(map(_hit, key.trace.enforced)), list(map(_hit, key.trace.pending))),
        counts.packets_in,
        counts.packets_out,
        counts.bytes_in,
        counts.bytes_out,
        counts.started,
        counts.completed,
        counts.live,
    )


def _hit(hit: Hit) -> WrittenHit:
    return WrittenHit(
        POLICY_KINDS[hit.kind],
        hit.name,
        hit.namespace,
        hit.tier,
        ACTIONS[hit.action],
        hit.policy_index,
        hit.rule_index,
        _hit(hit.trigger) if hit.trigger is not None else None,
    )


def line(flow: Flow) -> bytes:
    """A flow as one line of JSON, without the line's end."""
    return msgspec.json.encode(written(flow))


def read_line(text: bytes | str, subject: str = "flow") -> Flow:
    """The flow of a line. Raises InvalidValue, with `subject` for its place."""
    try:
        return flow_of(msgspec.json.decode(text, type=WrittenFlow), subject)
    except NO_DOCUMENT as problem:
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        raise InvalidValue("line", shown, f"a flow as JSON: {problem}", subject) from None


def flow_of(one: WrittenFlow, subject: str = "flow") -> Flow:
    """The flow of its written form. Raises InvalidValue naming the member."""
    key = Key(
        _end(one.source_type, one.source_name, one.source_namespace, "source_type", subject),
        _end(one.dest_type, one.dest_name, one.dest_namespace, "dest_type", subject),
        one.dest_port,
        one.proto,
        _named(REPORTERS, one.reporter, "reporter", subject),
        _named(ACTIONS, one.action, "action", subject),
        Service(
            one.dest_service_name,
            one.dest_service_namespace,
            one.dest_service_port_name,
            one.dest_service_port,
        ),
        Trace(
            tuple(_read_hit(hit, subject) for hit in one.policies.enforced),
            tuple(_read_hit(hit, subject) for hit in one.policies.pending),
        ),
    )
    counts = Counts(
        one.packets_in,
        one.packets_out,
        one.bytes_in,
        one.bytes_out,
        one.num_connections_started,
        one.num_connections_completed,
        one.num_connections_live,
    )
    labels = tuple(one.source_labels), tuple(one.dest_labels)
    return Flow(key, one.start_time, one.end_time, counts, *labels)


def _end(kind: str, name: str, namespace: str, field: str, subject: str) -> End:
    return End(_named(KINDS, kind, field, subject), name, namespace)


def _read_hit(hit: WrittenHit, subject: str) -> Hit:
    return Hit(
        _named(POLICY_KINDS, hit.kind, "policies.kind", subject),
        hit.tier,
        hit.namespace,
        hit.name,
        _named(ACTIONS, hit.action or ACTIONS[Action.UNSPECIFIED], "policies.action", subject),
        hit.policy_index,
        hit.rule_index,
        _read_hit(hit.trigger, subject) if hit.trigger is not None else None,
    )


def _named(names: dict[_Number, str], name: str, field: str, subject: str) -> _Number:
    for number, known in names.items():
        if known == name:
            return number
    raise InvalidValue(field, name, f"one of {', '.join(names.values())}", subject)
