"""Flows, questions and answers as Goldmane's messages, and back.

What a sender leaves out is the field's zero. A number that no enumeration here has becomes
UNSPECIFIED: a newer peer may know more. Kinds 7 and 8, which Felix had before ClusterNetworkPolicy
had its own, are read as that.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeVar

from flows import goldmane_pb2 as pb
from flows.query import (
    Direction,
    Filter,
    FlowQuery,
    GroupBy,
    HintKind,
    HintQuery,
    PolicyMatch,
    Series,
    SortBy,
    StatisticKind,
    StatisticsQuery,
    Text,
)
from flows.record import (
    INTERVAL,
    NONE,
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

Numbered = TypeVar("Numbered", bound=IntEnum)

_FORMER = {7: PolicyKind.CLUSTER_NETWORK_POLICY, 8: PolicyKind.CLUSTER_NETWORK_POLICY}


def flow_message(flow: Flow) -> pb.Flow:
    """The message of a flow."""
    counts = flow.counts
    return pb.Flow(
        Key=key_message(flow.key),
        start_time=flow.start,
        end_time=flow.end,
        source_labels=flow.source_labels,
        dest_labels=flow.destination_labels,
        packets_in=counts.packets_in,
        packets_out=counts.packets_out,
        bytes_in=counts.bytes_in,
        bytes_out=counts.bytes_out,
        num_connections_started=counts.started,
        num_connections_completed=counts.completed,
        num_connections_live=counts.live,
    )


def key_message(key: Key) -> pb.FlowKey:
    """The message of a key."""
    source, destination, service = key.source, key.destination, key.service
    return pb.FlowKey(
        source_name=source.name,
        source_namespace=source.namespace or NONE,
        source_type=_number(source.kind),
        dest_name=destination.name,
        dest_namespace=destination.namespace or NONE,
        dest_type=_number(destination.kind),
        dest_port=key.port,
        dest_service_name=service.name or NONE,
        dest_service_namespace=service.namespace or NONE,
        dest_service_port_name=service.port_name or NONE,
        dest_service_port=service.port,
        proto=key.protocol,
        reporter=_number(key.reporter),
        action=_number(key.action),
        policies=pb.PolicyTrace(
            enforced_policies=map(hit_message, key.trace.enforced),
            pending_policies=map(hit_message, key.trace.pending),
        ),
    )


def hit_message(hit: Hit) -> pb.PolicyHit:
    """The message of a hit."""
    return pb.PolicyHit(
        kind=_number(hit.kind),
        namespace=hit.namespace,
        name=hit.name,
        tier=hit.tier,
        action=_number(hit.action),
        policy_index=hit.policy_index,
        rule_index=hit.rule_index,
        trigger=hit_message(hit.trigger) if hit.trigger is not None else None,
    )


def flow_of(message: pb.Flow) -> Flow:
    """The flow of a message. Labels are sorted, as Felix sends them."""
    return Flow(
        key_of(message.Key),
        message.start_time,
        message.end_time,
        Counts(
            message.packets_in,
            message.packets_out,
            message.bytes_in,
            message.bytes_out,
            message.num_connections_started,
            message.num_connections_completed,
            message.num_connections_live,
        ),
        tuple(sorted(message.source_labels)),
        tuple(sorted(message.dest_labels)),
    )


def key_of(message: pb.FlowKey) -> Key:
    """The key of a message."""
    return Key(
        _end(message.source_type, message.source_name, message.source_namespace),
        _end(message.dest_type, message.dest_name, message.dest_namespace),
        message.dest_port,
        message.proto,
        known(Reporter, message.reporter),
        known(Action, message.action),
        Service(
            _blank(message.dest_service_name),
            _blank(message.dest_service_namespace),
            _blank(message.dest_service_port_name),
            message.dest_service_port,
        ),
        Trace(
            _trace(message.policies.enforced_policies),
            _trace(message.policies.pending_policies),
        ),
    )


def _trace(hits: Iterable[pb.PolicyHit]) -> tuple[Hit, ...]:
    """Hits in their order: Calico's felix before v3.32 sends them as a set has them."""
    return tuple(sorted(map(hit_of, hits), key=attrgetter("policy_index")))


def hit_of(message: pb.PolicyHit) -> Hit:
    """The hit of a message; of a trigger no further trigger is taken."""
    trigger = message.trigger if message.HasField("trigger") else None
    return _hit(message, _hit(trigger, None) if trigger is not None else None)


def _hit(message: pb.PolicyHit, trigger: Hit | None) -> Hit:
    kind = _FORMER.get(message.kind) or known(PolicyKind, message.kind)
    action = known(Action, message.action)
    index, rule = message.policy_index, message.rule_index
    return Hit(kind, message.tier, message.namespace, message.name, action, index, rule, trigger)


def _end(kind: int, name: str, namespace: str) -> End:
    return End(known(EndKind, kind), name, _blank(namespace))


def _blank(text: str) -> str:
    return "" if text == NONE else text


def _number(member: IntEnum) -> Any:
    # The generated types want their own enumeration; on the wire, and in them, it is a number.
    return int(member)


def known(numbers: type[Numbered], number: int) -> Numbered:
    """The member of this number, the one of 0 where there is none."""
    try:
        return numbers(number)
    except ValueError:
        return numbers(0)


def filter_message(chosen: Filter) -> pb.Filter:
    """The message of a filter."""
    return pb.Filter(
        source_names=map(_text_message, chosen.source_names),
        source_namespaces=map(_text_message, chosen.source_namespaces),
        dest_names=map(_text_message, chosen.destination_names),
        dest_namespaces=map(_text_message, chosen.destination_namespaces),
        protocols=map(_text_message, chosen.protocols),
        dest_ports=[pb.PortMatch(port=port) for port in chosen.ports],
        actions=map(_number, chosen.actions),
        policies=map(match_message, chosen.policies),
        reporter=_number(chosen.reporter),
        pending_actions=map(_number, chosen.pending_actions),
    )


def match_message(match: PolicyMatch) -> pb.PolicyMatch:
    """The message of a match of policies."""
    message = pb.PolicyMatch(kind=_number(match.kind), action=_number(match.action))
    for text, field in (
        (match.tier, message.tier),
        (match.namespace, message.namespace),
        (match.name, message.name),
    ):
        if text.value:
            field.CopyFrom(_text_message(text))
    return message


def filter_of(message: pb.Filter) -> Filter:
    """The filter of a message."""
    return Filter(
        _texts(message.source_names),
        _texts(message.source_namespaces),
        _texts(message.dest_names),
        _texts(message.dest_namespaces),
        _texts(message.protocols),
        tuple(one.port for one in message.dest_ports),
        tuple(known(Action, one) for one in message.actions),
        tuple(map(match_of, message.policies)),
        known(Reporter, message.reporter),
        tuple(known(Action, one) for one in message.pending_actions),
    )


def match_of(message: pb.PolicyMatch) -> PolicyMatch:
    """The match of policies of a message."""
    kind = _FORMER.get(message.kind) or known(PolicyKind, message.kind)
    tier, namespace, name = map(_text, (message.tier, message.namespace, message.name))
    return PolicyMatch(kind, tier, namespace, name, known(Action, message.action))


def _text_message(text: Text) -> pb.StringMatch:
    return pb.StringMatch(value=text.value, type=pb.Fuzzy if text.fuzzy else pb.Exact)


def _text(message: pb.StringMatch) -> Text:
    return Text(message.value, message.type == pb.Fuzzy)


def _texts(messages: Iterable[pb.StringMatch]) -> tuple[Text, ...]:
    return tuple(map(_text, messages))


def list_message(query: FlowQuery) -> pb.FlowListRequest:
    """The request for a list."""
    return pb.FlowListRequest(
        start_time_gte=query.start,
        start_time_lt=query.end,
        page=query.page,
        page_size=query.page_size,
        sort_by=[pb.SortOption(sort_by=_number(one)) for one in query.sort],
        filter=filter_message(query.filter),
        aggregation_interval=INTERVAL,
    )


def list_of(message: pb.FlowListRequest) -> FlowQuery:
    """The query of a request for a list; ValueError with a sort order that does not exist."""
    return FlowQuery(
        message.start_time_gte,
        message.start_time_lt,
        filter_of(message.filter),
        tuple(SortBy(one.sort_by) for one in message.sort_by),
        message.page,
        message.page_size,
    )


def hints_message(query: HintQuery) -> pb.FilterHintsRequest:
    """The request for hints."""
    return pb.FilterHintsRequest(
        type=_number(query.kind),
        filter=filter_message(query.filter),
        start_time_gte=query.start,
        start_time_lt=query.end,
        page=query.page,
        page_size=query.page_size,
    )


def hints_of(message: pb.FilterHintsRequest) -> HintQuery:
    """The query of a request for hints."""
    return HintQuery(
        known(HintKind, message.type),
        message.start_time_gte,
        message.start_time_lt,
        filter_of(message.filter),
        message.page,
        message.page_size,
    )


def statistics_message(query: StatisticsQuery) -> pb.StatisticsRequest:
    """The request for statistics."""
    return pb.StatisticsRequest(
        start_time_gte=query.start,
        start_time_lt=query.end,
        type=_number(query.kind),
        group_by=_number(query.group_by),
        policy_match=match_message(query.policy),
        time_series=query.time_series,
    )


def statistics_of(message: pb.StatisticsRequest) -> StatisticsQuery:
    """The query of a request for statistics; ValueError with a number that means nothing."""
    return StatisticsQuery(
        StatisticKind(message.type),
        GroupBy(message.group_by),
        message.start_time_gte,
        message.start_time_lt,
        match_of(message.policy_match),
        message.time_series,
    )


def series_message(series: Series) -> pb.StatisticsResult:
    """The message of figures."""
    return pb.StatisticsResult(
        policy=hit_message(series.policy),
        direction=_number(series.direction),
        group_by=_number(series.group_by),
        type=_number(series.kind),
        allowed_in=series.allowed_in,
        allowed_out=series.allowed_out,
        denied_in=series.denied_in,
        denied_out=series.denied_out,
        passed_in=series.passed_in,
        passed_out=series.passed_out,
        x=series.times,
    )


def series_of(message: pb.StatisticsResult) -> Series:
    """The figures of a message."""
    return Series(
        hit_of(message.policy),
        known(Direction, message.direction),
        known(GroupBy, message.group_by),
        known(StatisticKind, message.type),
        tuple(message.allowed_in),
        tuple(message.allowed_out),
        tuple(message.denied_in),
        tuple(message.denied_out),
        tuple(message.passed_in),
        tuple(message.passed_out),
        tuple(message.x),
    )
