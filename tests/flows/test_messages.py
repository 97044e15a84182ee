"""Every value as its message and back, and what messages of others hold."""

import inspect
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import goldmane_pb2 as pb
from flows import messages, query, record
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
from flows.record import Action, End, EndKind, Flow, Hit, PolicyKind, Reporter
from tests.flows import worlds
from tests.size import examples

texts = st.builds(Text, st.sampled_from(["web", "shop", "-", ""]), st.booleans())
named = st.builds(Text, st.sampled_from(["web", "shop"]), st.booleans()) | st.just(Text())
actions = st.sampled_from(Action)
matches = st.builds(PolicyMatch, st.sampled_from(PolicyKind), named, named, named, actions)
some_texts = st.lists(texts, max_size=2).map(tuple)
filters = st.builds(
    Filter,
    some_texts,
    some_texts,
    some_texts,
    some_texts,
    some_texts,
    st.lists(st.integers(0, 65535), max_size=2).map(tuple),
    st.lists(actions, max_size=2).map(tuple),
    st.lists(matches, max_size=2).map(tuple),
    st.sampled_from(Reporter),
    st.lists(actions, max_size=2).map(tuple),
)
times = st.integers(-3600, 10**10)


@settings(max_examples=examples(100), deadline=None)
@given(worlds.flows(1500, 4))
def test_a_flow_survives_the_wire(flow: Flow) -> None:
    sent = messages.flow_message(flow).SerializeToString()
    assert messages.flow_of(pb.Flow.FromString(sent)) == flow


@settings(max_examples=examples(100), deadline=None)
@given(filters, times, times, st.sampled_from(SortBy))
def test_a_list_survives_the_wire(chosen: Filter, start: int, end: int, sort: SortBy) -> None:
    asked = FlowQuery(start, end, chosen, (sort,), 3, 100)
    sent = messages.list_message(asked).SerializeToString()
    assert messages.list_of(pb.FlowListRequest.FromString(sent)) == asked


@settings(max_examples=examples(50), deadline=None)
@given(filters, times, times, st.sampled_from(HintKind))
def test_hints_survive_the_wire(chosen: Filter, start: int, end: int, kind: HintKind) -> None:
    asked = HintQuery(kind, start, end, chosen, 1, 5)
    sent = messages.hints_message(asked).SerializeToString()
    assert messages.hints_of(pb.FilterHintsRequest.FromString(sent)) == asked


@settings(max_examples=examples(50), deadline=None)
@given(matches, times, st.sampled_from(StatisticKind), st.sampled_from(GroupBy), st.booleans())
def test_statistics_survive_the_wire(
    match: PolicyMatch, start: int, kind: StatisticKind, by: GroupBy, series: bool
) -> None:
    asked = StatisticsQuery(kind, by, start, 0, match, series)
    sent = messages.statistics_message(asked).SerializeToString()
    assert messages.statistics_of(pb.StatisticsRequest.FromString(sent)) == asked


@settings(max_examples=examples(50), deadline=None)
@given(worlds.hits, st.sampled_from(Direction), st.lists(st.integers(0, 9), max_size=3).map(tuple))
def test_figures_survive_the_wire(hit: Hit, direction: Direction, figures: tuple[int, ...]) -> None:
    told = Series(
        hit, direction, GroupBy.RULE, StatisticKind.BYTES, figures, figures[:1], denied_in=(4,),
        denied_out=(5,), passed_in=(6,), passed_out=(7,), times=(15,),
    )  # fmt: skip
    sent = messages.series_message(told).SerializeToString()
    assert messages.series_of(pb.StatisticsResult.FromString(sent)) == told


def test_every_number_is_goldmanes() -> None:
    """Each enumeration here has the members of Goldmane's, and the same numbers."""
    theirs = {
        record.EndKind: pb.EndpointType,
        record.Action: pb.Action,
        record.Reporter: pb.Reporter,
        record.PolicyKind: pb.PolicyKind,
        query.SortBy: pb.SortBy,
        query.HintKind: pb.FilterType,
        query.StatisticKind: pb.StatisticType,
        query.GroupBy: pb.StatisticsGroupBy,
        query.Direction: pb.RuleDirection,
    }
    for ours, wire in theirs.items():
        assert {one.value for one in ours} == set(wire.values()), ours
    defined = {
        one
        for module in (record, query)
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, IntEnum) and one is not IntEnum
    }
    assert defined == set(theirs)


def test_an_end_without_namespace_is_a_hyphen_on_the_wire() -> None:
    """As Calico's Felix writes it and Whisker shows it."""
    flow = messages.flow_of(pb.Flow(Key=pb.FlowKey(dest_name="pub", dest_namespace="-")))
    assert flow.key.destination == End(EndKind.UNSPECIFIED, "pub", "")
    assert flow.key.service == record.Service()
    sent = messages.key_message(flow.key)
    assert (sent.dest_namespace, sent.dest_service_name) == ("-", "-")


@pytest.mark.parametrize("former", [7, 8])
def test_a_kind_of_an_older_felix_is_the_one_that_took_its_place(former: int) -> None:
    sent = pb.PolicyHit(name="x")
    sent.MergeFromString(bytes((8, former)))
    assert messages.hit_of(sent).kind is PolicyKind.CLUSTER_NETWORK_POLICY


def test_a_number_of_a_newer_peer_is_unspecified() -> None:
    sent = pb.FlowKey()
    sent.MergeFromString(bytes((14 << 3, 99)))
    assert messages.key_of(sent).action is Action.UNSPECIFIED


def test_a_sort_order_that_does_not_exist_is_refused() -> None:
    request = pb.FlowListRequest(sort_by=[pb.SortOption()])
    request.sort_by[0].MergeFromString(bytes((8, 42)))
    with pytest.raises(ValueError, match="42"):
        messages.list_of(request)
