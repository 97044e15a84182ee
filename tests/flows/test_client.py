"""Our client against our aggregator: every call of the API, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc.aio
import pytest

from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc, messages
from flows.client import Aggregator
from flows.place import NODE, AggregatorError, AggregatorUnavailable, Place
from flows.query import (
    Direction,
    Filter,
    FlowQuery,
    GroupBy,
    HintKind,
    HintQuery,
    PolicyMatch,
    Seen,
    SortBy,
    StatisticKind,
    StatisticsQuery,
    Text,
)
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
from libcalico.errors import InvalidValue
from tests.flows.running import NOW, Running, aggregator
from tests.support.patience import until

START = NOW - 60
LOCKED = Hit(PolicyKind.CALICO_NETWORK_POLICY, "security", "shop", "locked", Action.DENY, 0, 2)
OPEN = Hit(PolicyKind.GLOBAL_NETWORK_POLICY, "default", "", "open", Action.ALLOW, 0, 1)
STAGED = Hit(PolicyKind.STAGED_NETWORK_POLICY, "default", "shop", "soon", Action.DENY, 1, 0)
NO_RULE = Hit(PolicyKind.END_OF_TIER, "security", "", "", Action.DENY, 0, -1, LOCKED)


def flow(
    source: End,
    destination: End,
    *,
    port: int = 80,
    protocol: str = "tcp",
    reporter: Reporter = Reporter.SOURCE,
    action: Action = Action.ALLOW,
    trace: Trace = Trace((OPEN,), (OPEN,)),  # noqa: B008
    start: int = START,
    counts: Counts = Counts(2, 3, 200, 300, 1, 1, 1),  # noqa: B008
) -> Flow:
    service = Service("web", "shop", "http", 80) if port == 80 else Service()
    key = Key(source, destination, port, protocol, reporter, action, service, trace)
    return Flow(key, start, start + 15, counts, ("app=web", "tier=a"), ("app=db",))


WEB = End(EndKind.WORKLOAD, "web-*", "shop")
DB = End(EndKind.WORKLOAD, "db-*", "data")
HOST = End(EndKind.HOST, "node-1")
OFFICE = End(EndKind.NETWORK_SET, "office", "shop-nets")
PUBLIC = End(EndKind.NETWORK, "pub")

ALLOWED = flow(WEB, DB, port=5432)
ANSWERED = flow(WEB, DB, port=5432, reporter=Reporter.DESTINATION)
DENIED = flow(
    OFFICE, WEB, reporter=Reporter.DESTINATION, action=Action.DENY,
    trace=Trace((LOCKED,), (LOCKED,)), start=START + 15,
)  # fmt: skip
OUT = flow(WEB, PUBLIC, port=53, protocol="udp", trace=Trace((OPEN,), (OPEN, STAGED)))
ENDED = flow(HOST, WEB, action=Action.DENY, trace=Trace((NO_RULE,), (NO_RULE,)))
WORLD = {"allowed": ALLOWED, "answered": ANSWERED, "denied": DENIED, "out": OUT, "ended": ENDED}


async def deliver(running: Running, flows: Iterable[Flow], node: str = "n1") -> int:
    """Send flows and wait for every receipt; how many there were."""
    async with grpc.aio.insecure_channel(running.place.address) as channel:
        call = goldmane_pb2_grpc.FlowCollectorStub(channel).Connect(metadata=((NODE, node),))
        count = 0
        for one in flows:
            await call.write(pb.FlowUpdate(flow=messages.flow_message(one)))
            assert await call.read() == pb.FlowReceipt()
            count += 1
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return count


async def names(goldmane: Aggregator, chosen: Filter, **more: Any) -> set[str]:
    """Which flows of the world a list has."""
    listing = await goldmane.list(FlowQuery(filter=chosen, **more))
    known = {one.key: name for name, one in WORLD.items()}
    return {known[one.flow.key] for one in listing.flows}


def text(value: str, fuzzy: bool = False) -> tuple[Text, ...]:
    return (Text(value, fuzzy),)


CASES = {
    "nothing": (Filter(), set(WORLD)),
    "source name": (Filter(source_names=text("web-*")), {"allowed", "answered", "out"}),
    "source name, fuzzy": (Filter(source_names=text("off", True)), {"denied"}),
    "part of a name, exactly": (Filter(source_names=text("off")), set()),
    "either name": (Filter(source_names=text("office") + text("node-1")), {"denied", "ended"}),
    "destination name": (Filter(destination_names=text("db-*")), {"allowed", "answered"}),
    "as Whisker shows it": (Filter(destination_names=text("PUBLIC NETWORK")), {"out"}),
    "source namespace": (Filter(source_namespaces=text("shop-nets")), {"denied"}),
    "source namespace, fuzzy": (
        Filter(source_namespaces=text("shop", True)), {"allowed", "answered", "out", "denied"},
    ),
    "no namespace": (Filter(source_namespaces=text("-")), {"ended"}),
    "destination namespace": (Filter(destination_namespaces=text("shop")), {"denied", "ended"}),
    "protocol": (Filter(protocols=text("udp")), {"out"}),
    "port": (Filter(ports=(53, 443)), {"out"}),
    "action": (Filter(actions=(Action.DENY,)), {"denied", "ended"}),
    "reporter": (Filter(reporter=Reporter.DESTINATION), {"answered", "denied"}),
    "pending action": (Filter(pending_actions=(Action.DENY,)), {"denied", "ended", "out"}),
    "policy": (Filter(policies=(PolicyMatch(name=Text("open")),)), {"allowed", "answered", "out"}),
    "policy, fuzzy": (Filter(policies=(PolicyMatch(name=Text("lock", True)),)),
                      {"denied", "ended"}),
    "policy kind": (
        Filter(policies=(PolicyMatch(kind=PolicyKind.STAGED_NETWORK_POLICY),)), {"out"},
    ),
    "policy tier and action": (
        Filter(policies=(PolicyMatch(tier=Text("security"), action=Action.ALLOW),)), set(),
    ),
    "policy namespace": (
        Filter(policies=(PolicyMatch(namespace=Text("shop")),)), {"denied", "ended", "out"},
    ),
    "either policy": (
        Filter(policies=(PolicyMatch(name=Text("soon")), PolicyMatch(name=Text("locked")))),
        {"denied", "ended", "out"},
    ),
    "fields together": (
        Filter(source_names=text("web-*"), actions=(Action.ALLOW,), ports=(53,)), {"out"},
    ),
}  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("case", CASES)
async def test_each_filter(case: str) -> None:
    chosen, expected = CASES[case]
    async with aggregator() as running:
        await deliver(running, WORLD.values())
        async with Aggregator(running.place) as goldmane:
            assert await names(goldmane, chosen) == expected


@pytest.mark.asyncio
async def test_a_list_has_all_that_was_sent() -> None:
    async with aggregator() as running:
        assert await deliver(running, WORLD.values()) == len(WORLD)
        async with Aggregator(running.place) as goldmane:
            listing = await goldmane.list(FlowQuery())
    assert {one.flow for one in listing.flows} == set(WORLD.values())
    assert (listing.total, listing.pages) == (5, 1)
    assert listing.flows[0].flow == DENIED, "the newest is first"


@pytest.mark.asyncio
async def test_nodes_add_up_and_a_repetition_does_not() -> None:
    async with aggregator() as running:
        for node in ("n1", "n2", "n1"):
            await deliver(running, [ALLOWED], node)
        later = flow(WEB, DB, port=5432, start=START + 15, counts=Counts(live=7))
        await deliver(running, [later])
        async with Aggregator(running.place) as goldmane:
            (one,) = (await goldmane.list(FlowQuery())).flows
    assert one.flow.counts == Counts(4, 6, 400, 600, 2, 2, 7)
    assert (one.flow.start, one.flow.end) == (START, START + 30)


@pytest.mark.asyncio
async def test_hits_that_come_in_any_order_are_one_trace() -> None:
    """Calico's felix keeps the hits in a set, and before v3.32 sends them as the set has them."""
    passed = Hit(PolicyKind.CALICO_NETWORK_POLICY, "security", "shop", "locked", Action.PASS, 0, 2)
    allowed = Hit(PolicyKind.GLOBAL_NETWORK_POLICY, "default", "", "open", Action.ALLOW, 1, 1)
    traces = [Trace(hits, hits) for hits in ((passed, allowed), (allowed, passed))]
    async with aggregator() as running:
        for node, trace in zip(("n1", "n2"), traces, strict=True):
            await deliver(running, [flow(WEB, DB, trace=trace)], node)
        async with Aggregator(running.place) as goldmane:
            (one,) = (await goldmane.list(FlowQuery())).flows
    assert one.flow.key.trace == traces[0]
    assert one.flow.counts.packets_in == 4


@pytest.mark.asyncio
async def test_labels_are_those_that_all_have() -> None:
    async with aggregator() as running:
        await deliver(running, [ALLOWED])
        other = Flow(ALLOWED.key, START, START + 15, Counts(), ("app=web", "tier=b"), ())
        await deliver(running, [other], "n2")
        async with Aggregator(running.place) as goldmane:
            (one,) = (await goldmane.list(FlowQuery())).flows
    assert one.flow.source_labels == ("app=web",)
    assert one.flow.destination_labels == ()


@pytest.mark.asyncio
@pytest.mark.parametrize("sort", SortBy)
async def test_each_sort_order_and_its_pages(sort: SortBy) -> None:
    async with aggregator() as running:
        await deliver(running, WORLD.values())
        async with Aggregator(running.place) as goldmane:
            whole = await goldmane.list(FlowQuery(sort=(sort,)))
            pages = [
                await goldmane.list(FlowQuery(sort=(sort,), page=page, page_size=2))
                for page in range(3)
            ]
    assert tuple(one for page in pages for one in page.flows) == whole.flows
    assert {(page.total, page.pages) for page in pages} == {(5, 3)}
    order = [_sorted_by(sort, one) for one in whole.flows]
    assert order == sorted(order)


def _sorted_by(sort: SortBy, seen: Seen) -> Any:
    if sort is SortBy.TIME:
        return -seen.flow.start
    end, field = sort.name.lower().split("_")
    return getattr(getattr(seen.flow.key, end), field)


HINTS = {
    HintKind.DESTINATION_NAME: ("db-*", "pub", "web-*"),
    HintKind.SOURCE_NAME: ("node-1", "office", "web-*"),
    HintKind.DESTINATION_NAMESPACE: ("-", "data", "shop"),
    HintKind.SOURCE_NAMESPACE: ("-", "shop", "shop-nets"),
    HintKind.POLICY_TIER: ("default", "security"),
    HintKind.POLICY_NAME: ("locked", "open", "soon"),
    HintKind.POLICY_KIND: ("CalicoNetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy"),
    HintKind.POLICY_NAMESPACE: ("", "shop"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", HINTS)
async def test_each_hint(kind: HintKind) -> None:
    async with aggregator() as running:
        await deliver(running, WORLD.values())
        async with Aggregator(running.place) as goldmane:
            hints = await goldmane.hints(HintQuery(kind))
            first = await goldmane.hints(HintQuery(kind, page_size=1))
            some = await goldmane.hints(HintQuery(kind, filter=Filter(ports=(53,))))
    assert hints.values == HINTS[kind]
    assert first.values == HINTS[kind][:1]
    assert (first.total, first.pages) == (len(hints.values), len(hints.values))
    assert set(some.values) < set(hints.values) or kind is HintKind.POLICY_NAMESPACE


@pytest.mark.asyncio
async def test_statistics_by_policy_and_by_rule() -> None:
    async with aggregator() as running:
        await deliver(running, WORLD.values())
        async with Aggregator(running.place) as goldmane:
            policies = await goldmane.statistics(StatisticsQuery())
            rules = await goldmane.statistics(
                StatisticsQuery(StatisticKind.BYTES, GroupBy.RULE, time_series=True,
                                policy=PolicyMatch(name=Text("locked")))
            )  # fmt: skip
            none = await goldmane.statistics(
                StatisticsQuery(policy=PolicyMatch(name=Text("unknown")))
            )
    figures = {one.policy.name: one for one in policies}
    assert list(figures) == ["open", "soon", "locked"]
    assert (figures["open"].allowed_in, figures["open"].allowed_out) == ((6,), (9,))
    assert figures["soon"].denied_in == (2,)
    assert figures["locked"].denied_in == (4,), "its own rule, and the end of its tier"
    assert [(one.policy.rule_index, one.direction, one.times) for one in rules] == [
        (2, Direction.INGRESS, (START + 15,)),
        (-1, Direction.EGRESS, (START,)),
    ]
    assert [one.denied_out for one in rules] == [(300,), (300,)]
    assert none == ()


@pytest.mark.asyncio
async def test_live_connections_are_those_of_the_newest_bucket() -> None:
    async with aggregator() as running:
        await deliver(running, [ALLOWED, flow(WEB, DB, port=5432, start=START + 15)])
        query = StatisticsQuery(StatisticKind.LIVE_CONNECTIONS)
        async with Aggregator(running.place) as goldmane:
            (one,) = await goldmane.statistics(query)
    assert (one.allowed_in, one.allowed_out) == ((0,), (1,))


@pytest.mark.asyncio
async def test_a_stream_gives_what_is_complete_and_goes_on() -> None:
    async with aggregator() as running:
        await deliver(running, [ALLOWED, DENIED])
        async with Aggregator(running.place) as goldmane:
            denied = goldmane.stream(Filter(actions=(Action.DENY,)), start=-300)
            everything = goldmane.stream(start=START)
            assert (await anext(denied)).flow == DENIED
            first, second = await anext(everything), await anext(everything)
            assert [first.flow, second.flow] == [ALLOWED, DENIED]
            now = flow(WEB, DB, port=5432, start=NOW)
            await deliver(running, [now])
            await running.pass_time(30)
            third = await anext(everything)
            assert (third.flow, third.id) == (now, first.id)
            await everything.aclose()
            await denied.aclose()


@pytest.mark.asyncio
async def test_a_stream_from_now_has_nothing_of_before() -> None:
    async with aggregator() as running:
        await deliver(running, [ALLOWED])
        async with Aggregator(running.place) as goldmane:
            stream = goldmane.stream()
            waiting = asyncio.ensure_future(anext(stream))
            await until_streams(running, 1)
            await deliver(running, [flow(WEB, DB, start=NOW)])
            await running.pass_time(30)
            assert (await waiting).flow.start == NOW
            await stream.aclose()
            await until_streams(running, 0)


async def until_streams(running: Running, number: int) -> None:
    """Wait until the aggregator serves so many streams."""
    streams = running.process.figures.streams
    await until(lambda: streams.value() == number, f"{number} streams are served")


REFUSED: dict[str, tuple[str, Any, str]] = {
    "page": ("List", pb.FlowListRequest(page=2), "page"),
    "page size": ("List", pb.FlowListRequest(page_size=-1), "page_size"),
    "start": ("List", pb.FlowListRequest(start_time_gte=NOW + 100), "start_time_gte"),
    "interval": ("List", pb.FlowListRequest(aggregation_interval=20), "aggregation_interval"),
    "type": ("FilterHints", pb.FilterHintsRequest(), "type"),
    "stream": ("Stream", pb.FlowStreamRequest(aggregation_interval=60), "aggregation_interval"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", REFUSED)
async def test_what_means_nothing_is_refused_by_name(case: str) -> None:
    method, request, field = REFUSED[case]
    async with (
        aggregator() as running,
        grpc.aio.insecure_channel(running.place.address) as channel,
    ):
        call = getattr(goldmane_pb2_grpc.FlowsStub(channel), method)(request)
        with pytest.raises(grpc.aio.AioRpcError, match=field) as caught:
            await (call.read() if method == "Stream" else call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not valid" in str(caught.value.details())


@pytest.mark.asyncio
async def test_a_flow_without_anything_is_received_and_left_out() -> None:
    """A client of others may send what it likes; it gets its receipt."""
    async with aggregator() as running:
        empty = messages.flow_of(pb.Flow())
        assert await deliver(running, [empty, ALLOWED]) == 2
        assert running.process.store.ring.left_out == {"too old": 1}
        page = running.process.page().decode()
    assert 'goldmane_aggr_dropped_flows_total{reason="too old"} 1' in page
    assert "goldmane_aggr_received_flows_total 2" in page
    assert "goldmane_aggr_num_unique_flows 1" in page
    assert (
        'muslin_flow_packets_total{action="allow",kind="GlobalNetworkPolicy",namespace="",'
        'policy="open",reporter="source",tier="default"} 5' in page
    )


class _Cutting(goldmane_pb2_grpc.FlowsServicer):  # type: ignore[misc]
    """Lists as Goldmane does: what the end cuts has neither time nor counts."""

    async def List(self, request: pb.FlowListRequest, context: object) -> pb.FlowListResult:
        """One flow, of the interval that runs."""
        now = flow(WEB, DB, start=NOW // 15 * 15)
        seen = messages.flow_message(now)
        if now.end > (request.start_time_lt or NOW + 1):
            seen = pb.Flow(Key=seen.Key)
        return pb.FlowListResult(flows=[pb.FlowResult(id=1, flow=seen)])


@pytest.mark.asyncio
async def test_a_list_without_an_end_has_the_running_interval_whole() -> None:
    server = grpc.aio.server()
    goldmane_pb2_grpc.add_FlowsServicer_to_server(_Cutting(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Aggregator(Place(f"127.0.0.1:{port}")) as goldmane:
        (one,) = (await goldmane.list(FlowQuery(start=-900))).flows
    await server.stop(None)
    assert (one.flow.start, one.flow.counts.packets_in) == (NOW // 15 * 15, 2)


@pytest.mark.asyncio
async def test_an_aggregator_that_is_not_there_is_named() -> None:
    async with Aggregator(Place("127.0.0.1:1"), patience=5) as goldmane:
        with pytest.raises(AggregatorUnavailable, match=r"aggregator 127.0.0.1:1: listing flows"):
            await goldmane.list(FlowQuery())


@pytest.mark.asyncio
async def test_files_of_tls_come_together_and_must_be_there() -> None:
    with pytest.raises(InvalidValue, match="certificate"):
        await Aggregator(Place("127.0.0.1:1", ca="/ca.pem")).__aenter__()
    with pytest.raises(AggregatorUnavailable, match=r"cannot read /none/ca.pem"):
        await Aggregator(Place("127.0.0.1:1", "/none/ca.pem", "/c", "/k")).__aenter__()


@pytest.mark.asyncio
async def test_a_refusal_is_told_in_the_servers_words() -> None:
    async with aggregator() as running, Aggregator(running.place) as goldmane:
        with pytest.raises(AggregatorError, match=r"start_time_gte: .* is not valid"):
            await goldmane.list(FlowQuery(start=NOW + 100, end=NOW))


@pytest.mark.asyncio
async def test_a_stream_goes_on_when_the_clock_is_set_right() -> None:
    async with aggregator() as running, Aggregator(running.place) as goldmane:
        stream = goldmane.stream()
        waiting = asyncio.ensure_future(anext(stream))
        await until_streams(running, 1)
        await running.pass_time(365 * 86400)
        await running.pass_time(-365 * 86400)
        await deliver(running, [flow(WEB, DB, start=NOW)])
        await running.pass_time(30)
        assert (await waiting).flow.start == NOW
        await stream.aclose()
