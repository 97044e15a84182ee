"""The aggregator against a naive reading of everything that was sent, on worlds by lot."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.aggregate.store import Outcome, Store, answer_of
from flows.query import (
    Direction,
    Filter,
    FlowQuery,
    GroupBy,
    HintKind,
    HintQuery,
    Seen,
    SortBy,
    StatisticKind,
    StatisticsQuery,
)
from flows.record import INTERVAL, Action, Counts, End, EndKind, Flow, Key, PolicyKind, Reporter
from libcalico.errors import InvalidValue
from tests.flows import oracle, worlds
from tests.flows.test_messages import filters
from tests.size import examples

FIRST = 15_000
BUCKETS = 6
NOW = FIRST + BUCKETS * INTERVAL
one_world = st.lists(worlds.flows(FIRST, BUCKETS), max_size=30)
moments = st.integers(FIRST - 20, NOW + 20)


def filled(world: list[Flow]) -> Store:
    store = Store(NOW)
    for number, flow in enumerate(world):
        assert store.receive(flow, f"node-{number}", NOW) is Outcome.COUNTED
    return store


@settings(max_examples=examples(1000), deadline=None)
@given(one_world, filters, moments, moments, st.sampled_from(SortBy))
def test_a_list_is_what_was_sent(
    world: list[Flow], chosen: Filter, start: int, end: int, sort: SortBy
) -> None:
    """Also with the right rule: the trace is part of the key."""
    store = filled(world)
    if start >= end:
        with pytest.raises(InvalidValue, match="start_time_gte"):
            store.list(FlowQuery(start, end, chosen))
        return
    got = answer_of(store.list(FlowQuery(start, end, chosen, (sort,))))
    expected = oracle.listed(world, chosen, start, end)
    assert {one.flow.key: one.flow for one in got.flows} == expected
    assert got.total == len(got.flows) == len(expected)
    assert len({one.id for one in got.flows}) == len(expected)


@settings(max_examples=examples(100), deadline=None)
@given(one_world, st.sampled_from(SortBy), st.integers(1, 7))
def test_pages_are_the_sorted_list_cut(world: list[Flow], sort: SortBy, size: int) -> None:
    store = filled(world)
    whole = answer_of(store.list(FlowQuery(sort=(sort,))))
    assert whole.pages == (1 if whole.flows else 0)
    flows = list(whole.flows)
    if sort is SortBy.TIME:
        values: list[object] = [-one.flow.start for one in flows]
    else:
        end, field = sort.name.lower().split("_")
        values = oracle.sorted_by(flows, f"{end}.{field}")
    assert values == sorted(values)  # type: ignore[type-var]
    pages = -(-len(flows) // size)
    cut: list[Seen] = []
    for page in range(pages + 1):
        one = answer_of(store.list(FlowQuery(sort=(sort,), page=page, page_size=size)))
        assert (one.total, one.pages) == (len(flows), pages)
        assert len(one.flows) <= size
        cut += one.flows
    assert cut == flows


@settings(max_examples=examples(100), deadline=None)
@given(one_world, filters, moments, st.sampled_from(list(HintKind)[1:]))
def test_hints_are_the_values_that_a_list_has(
    world: list[Flow], chosen: Filter, start: int, kind: HintKind
) -> None:
    store = filled(world)
    got = answer_of(store.hints(HintQuery(kind, min(start, NOW - 1), NOW, chosen)))
    keys = oracle.listed(world, chosen, min(start, NOW - 1), NOW)
    assert list(got.values) == sorted({value for key in keys for value in values_of(kind, key)})


def values_of(kind: HintKind, key: Key) -> list[str]:
    owner, _, field = kind.name.partition("_")
    ends = {"SOURCE": key.source, "DESTINATION": key.destination}
    if owner in ends:
        return [getattr(ends[owner], field.lower()) or "-"]
    hits = [one for one in (*key.trace.enforced, *key.trace.pending) if one.kind != 9]
    policies = [hit.trigger or hit for hit in hits]
    if field == "KIND":
        return [GOLDMANES[policy.kind] for policy in policies]
    return [getattr(policy, field.lower()) for policy in policies]


GOLDMANES = {
    PolicyKind.CALICO_NETWORK_POLICY: "CalicoNetworkPolicy",
    PolicyKind.GLOBAL_NETWORK_POLICY: "GlobalNetworkPolicy",
    PolicyKind.STAGED_NETWORK_POLICY: "StagedNetworkPolicy",
    PolicyKind.STAGED_GLOBAL_NETWORK_POLICY: "StagedGlobalNetworkPolicy",
    PolicyKind.STAGED_KUBERNETES_NETWORK_POLICY: "StagedKubernetesNetworkPolicy",
    PolicyKind.KUBERNETES_NETWORK_POLICY: "NetworkPolicy",
    PolicyKind.PROFILE: "Profile",
    PolicyKind.UNSPECIFIED: "KindUnspecified",
    PolicyKind.CLUSTER_NETWORK_POLICY: "ClusterNetworkPolicy",
}


@settings(max_examples=examples(100), deadline=None)
@given(
    one_world,
    st.sampled_from(StatisticKind),
    st.sampled_from(GroupBy),
    st.booleans(),
    st.integers(FIRST, NOW - 1),
)
def test_statistics_are_what_was_sent(
    world: list[Flow], kind: StatisticKind, by: GroupBy, series: bool, start: int
) -> None:
    query = StatisticsQuery(kind, by, start, NOW, time_series=series)
    expected = oracle.figures(world, query, NOW)
    got = answer_of(filled(world).statistics(query))
    assert len(got) == len(expected)
    for one in got:
        group: tuple[object, ...] = (
            one.policy.kind, one.policy.tier, one.policy.namespace, one.policy.name,
        )  # fmt: skip
        if by is GroupBy.RULE:
            group = (*group, one.policy.action, one.policy.rule_index, one.direction)
        else:
            assert one.direction is Direction.ANY
        rows = expected[group]
        assert isinstance(rows, dict)
        columns = (
            one.allowed_in, one.allowed_out, one.denied_in, one.denied_out, one.passed_in,
            one.passed_out,
        )  # fmt: skip
        if series:
            assert one.times == tuple(rows)
            assert [list(row) for row in zip(*columns, strict=True)] == list(rows.values())
        else:
            last = kind is StatisticKind.LIVE_CONNECTIONS
            told = list(rows.values())[-1:] if last else list(rows.values())
            assert one.times == ()
            assert [column[0] for column in columns] == [sum(each) for each in zip(*told)]  # noqa: B905


def flow(start: int, name: str = "web", packets: int = 1) -> Flow:
    ends = End(EndKind.WORKLOAD, name, "shop"), End(EndKind.WORKLOAD, "db", "shop")
    key = Key(*ends, 5432, "tcp", Reporter.SOURCE, Action.ALLOW)
    return Flow(key, start, start + INTERVAL, Counts(packets))


def total(store: Store) -> int:
    listing = answer_of(store.list(FlowQuery()))
    return sum(one.flow.counts.packets_in for one in listing.flows)


def test_what_a_node_sends_twice_counts_once() -> None:
    store = Store(NOW)
    assert store.receive(flow(FIRST), "n1", NOW) is Outcome.COUNTED
    assert store.receive(flow(FIRST), "n1", NOW + 100) is Outcome.REPEATED
    assert store.receive(flow(FIRST), "n2", NOW + 100) is Outcome.COUNTED
    assert total(store) == 2


def test_a_repetition_is_forgotten_after_six_minutes() -> None:
    store = Store(NOW)
    store.receive(flow(FIRST), "n1", NOW)
    store.receive(flow(FIRST, "other"), "n1", NOW + 500)
    assert store.remembered == 1


def test_an_hour_is_kept() -> None:
    store = Store(FIRST)
    store.receive(flow(FIRST), "n1", FIRST)
    store.roll(FIRST + 3600 + 14)
    assert total(store) == 1
    store.roll(FIRST + 3600 + 15)
    assert total(store) == 0
    assert (store.ring.rows, store.ring.keys) == (0, 0)


@pytest.mark.parametrize(
    ("start", "reason"),
    [(NOW - 3601, "too old"), (NOW + 30, "in the future")],
)
def test_what_no_bucket_takes_is_counted_by_reason(start: int, reason: str) -> None:
    store = Store(NOW)
    assert store.receive(flow(start), "n1", NOW) is Outcome.LEFT_OUT
    assert store.ring.left_out == {reason: 1}
    assert store.ring.keys == 0


def test_a_clock_that_runs_fifteen_seconds_ahead_is_taken() -> None:
    store = Store(NOW)
    assert store.receive(flow(NOW + 29), "n1", NOW) is Outcome.COUNTED


def test_a_count_that_is_no_count_is_left_out() -> None:
    store = Store(NOW)
    for packets in (-1, 2**60):
        assert store.receive(flow(FIRST, packets=packets), "n1", NOW) is Outcome.LEFT_OUT
    assert store.ring.left_out == {"a count is negative or too large": 2}


def test_where_there_is_no_room_the_oldest_goes_first() -> None:
    store = Store(NOW, most=3)
    for number in range(6):
        assert store.receive(flow(FIRST + number * 15, f"w{number}"), "n", NOW) is Outcome.COUNTED
    names = [
        one.flow.key.source.name for one in answer_of(store.list(FlowQuery(end=NOW + 1))).flows
    ]
    assert names == ["w5", "w4", "w3"]
    assert (store.ring.cut, store.ring.rows, store.ring.keys) == (3, 3, 3)


def test_a_stream_lags_so_that_nodes_have_sent() -> None:
    """At NOW the bucket that ended 15 s ago is complete, the one that ended now is not."""
    store = Store(NOW)
    for start in (NOW - 30, NOW - 15, NOW):
        store.receive(flow(start), "n1", NOW)
    assert [one.start for one in store.complete(0)] == [NOW - 30]
    store.roll(NOW + 15)
    assert [one.start for one in store.complete(NOW - 15)] == [NOW - 15]


def test_a_late_flow_finds_its_row() -> None:
    """Also in a bucket whose index was given back."""
    store = Store(NOW)
    for number in range(20):
        store.receive(flow(NOW + number * 15), "n1", NOW + number * 15)
    store.receive(flow(NOW), "n2", NOW + 300)
    assert store.ring.rows == 20
    assert total(store) == 21


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (FlowQuery(page=-1, page_size=1), "page"),
        (FlowQuery(page=1), "page"),
        (FlowQuery(page_size=-5), "page_size"),
        (FlowQuery(start=NOW, end=NOW), "start_time_gte"),
    ],
)
def test_a_list_that_means_nothing_is_refused_by_name(query: FlowQuery, field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Store(NOW).list(query)
    assert caught.value.field == field


def test_hints_of_no_field_are_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="type") as caught:
        Store(NOW).hints(HintQuery(HintKind.UNSPECIFIED))
    assert caught.value.field == "type"


def test_relative_times_count_from_now() -> None:
    store = Store(NOW)
    for start in (NOW - 60, NOW - 30):
        store.receive(flow(start, f"at{start}"), "n1", NOW)
    got = answer_of(store.list(FlowQuery(start=-45, end=-15)))
    assert [one.flow.start for one in got.flows] == [NOW - 30]
