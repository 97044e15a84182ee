"""Calico's Goldmane beside our aggregator: the same flows, the same questions, the same answers.

Calico's own client sends the flows to both and asks both; the answers are compared as JSON. What
is different on purpose stands in docs/interop.md, and has a test here of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import ParseDict
from msgspec.structs import replace

from felix.flows.outputs import Outputs, Wanted
from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc
from flows.client import Aggregator
from flows.place import AggregatorError, channel
from flows.query import (
    Filter,
    FlowQuery,
    GroupBy,
    HintKind,
    HintQuery,
    PolicyMatch,
    SortBy,
    StatisticKind,
    StatisticsQuery,
    Text,
)
from flows.record import Counts, Flow
from flows.sending import Sender
from libcalico.process import tasks
from tests.calicoctl.conftest import in_this_process
from tests.flows.test_client import WORLD
from tests.interop import goldmane_world as lot
from tests.interop.conftest import program
from tests.interop.driver import Refusal
from tests.interop.goldmane import Message, Pair, Server, pair, whisker
from tests.support.patience import HANG, until, until_asked, wait_for

pytestmark = pytest.mark.interop

SEED, FLOWS, QUESTIONS = 20261128, 400, 150
NAMES = ["DestName", "DestNamespace", "SourceName", "SourceNamespace"]
HINTS = ["DestName", "SourceName", "DestNamespace", "SourceNamespace",
         "PolicyTier", "PolicyName", "PolicyKind", "PolicyNamespace"]  # fmt: skip
AGO = 1800
"""Seconds: flows lie between here and half of it, far from both ends of the hour."""


@pytest.fixture(scope="module")
def programs() -> tuple[str, str]:
    """Calico's server, and the driver of its client."""
    return program("goldmane"), program("goldmane-driver")


@pytest.fixture(scope="module")
def servers(programs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers, with the flows of the lot and no others."""
    with pair(*programs, tmp_path_factory.mktemp("goldmane")) as both:
        both.push(lot.flows(Random(SEED), FLOWS, begin()))
        yield both


@pytest.fixture(scope="module")
def apart(programs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two others, for tests with flows of their own."""
    with pair(*programs, tmp_path_factory.mktemp("apart")) as both:
        yield both


@cache
def begin() -> int:
    """Where the flows begin. Asked first when a server begins: this file is read long before."""
    return int(time.time() - AGO) // lot.INTERVAL * lot.INTERVAL


def whole() -> dict[str, int]:
    """All of the lot."""
    return {"start_time_gte": begin(), "start_time_lt": begin() + lot.BUCKETS * lot.INTERVAL}


def unnumbered(answer: Message) -> list[Message]:
    """The flows of an answer, without the numbers that a server gives them."""
    return [one["flow"] for one in answer["items"]]


def in_any_order(items: list[Any]) -> list[str]:
    """Items, to be compared as a set with repetitions."""
    return sorted(json.dumps(one, sort_keys=True) for one in items)


def spans(random: Random) -> Message:
    """A span of whole intervals, the whole of the lot more often than not."""
    first, last = sorted(random.sample(range(lot.BUCKETS + 1), 2))
    some = {
        "start_time_gte": begin() + first * lot.INTERVAL,
        "start_time_lt": begin() + last * lot.INTERVAL,
    }
    return random.choice([whole(), whole(), some])


def test_the_schema_is_goldmanes(servers: Pair) -> None:
    """Package, services, messages and enumerations with every name, number and type."""
    (theirs,) = servers.theirs.driver("schema")["items"]
    ours = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(ours)
    other = ParseDict(theirs, FileDescriptorProto())
    assert entries(ours) == entries(other)
    assert len(entries(ours)) > 100


def entries(file: FileDescriptorProto) -> Message:
    """What of a schema is on the wire, by name; the order of the text does not count."""
    found: Message = {"package": (file.package, file.syntax)}
    for message in file.message_type:
        kept = [(one.start, one.end) for one in message.reserved_range]
        found[message.name] = kept, [one.name for one in message.oneof_decl]
        for field in message.field:
            kind = field.type, field.label, field.type_name
            found[f"{message.name}.{field.name}"] = field.number, *kind
    for enum in file.enum_type:
        found[enum.name] = sorted((one.start, one.end) for one in enum.reserved_range)
        for value in enum.value:
            found[f"{enum.name}.{value.name}"] = value.number
    for service in file.service:
        for method in service.method:
            streams = method.client_streaming, method.server_streaming
            found[f"{service.name}.{method.name}"] = method.input_type, method.output_type, streams
    return found


def test_lists_with_each_filter(servers: Pair) -> None:
    random, found = Random(SEED), 0
    for _ in range(QUESTIONS):
        request = {**spans(random), "filter": lot.chosen(random)}
        ours, theirs = servers.both("list", **request)
        assert ours["meta"] == theirs["meta"], request
        assert in_any_order(unnumbered(ours)) == in_any_order(unnumbered(theirs)), request
        starts = [one["start_time"] for one in unnumbered(ours)]
        assert starts == [one["start_time"] for one in unnumbered(theirs)], "the newest is first"
        found += len(starts)
    assert found > FLOWS, "the filters find something"


@pytest.mark.parametrize("order", NAMES)
def test_lists_in_each_order_page_by_page(servers: Pair, order: str) -> None:
    random = Random(f"{SEED}/{order}")
    for _ in range(QUESTIONS // 5):
        request = {
            **spans(random),
            "filter": random.choice([{}, lot.chosen(random)]),
            "sort_by": [{"sort_by": order}],
            "page_size": random.choice([0, 1, 7, 50, 1000]),
        }
        page = random.randrange(4) if request["page_size"] else 0
        ours, theirs = servers.both("list", **request, page=page)
        assert ours["meta"] == theirs["meta"], request
        assert unnumbered(ours) == unnumbered(theirs), request


def test_pages_of_the_newest(apart: Pair) -> None:
    """Goldmane shuffles flows of one start; here each has its own."""
    key = lot.flows(Random(SEED), 3, begin())[0]["Key"] | {"source_namespace": "pages"}
    flows = [
        {"Key": {**key, "source_name": f"paged-{number}"}, "start_time": begin() + number * 15,
         "end_time": begin() + number * 15 + 15, "packets_in": number}
        for number in range(20)
    ]  # fmt: skip
    apart.push(flows)
    only = {"filter": {"source_namespaces": [{"value": "pages"}]}, **whole()}
    for size, page in ((7, 0), (7, 1), (7, 2), (20, 0), (1, 19)):
        ours, theirs = apart.both("list", **only, page_size=size, page=page)
        assert ours["meta"] == theirs["meta"]
        assert unnumbered(ours) == unnumbered(theirs)
        assert ours["items"]


@pytest.mark.parametrize("kind", HINTS)
def test_hints_page_by_page(servers: Pair, kind: str) -> None:
    random = Random(f"{SEED}/{kind}")
    found = 0
    for _ in range(QUESTIONS // 5):
        request = {
            **spans(random),
            "type": f"FilterType{kind}",
            "filter": random.choice([{}, lot.chosen(random)]),
            "page_size": random.choice([0, 1, 2, 100]),
        }
        ours, theirs = servers.both("hints", **request)
        assert ours == theirs, request
        found += len(ours["items"])
    assert found


@pytest.mark.parametrize("series", [False, True])
@pytest.mark.parametrize("by", ["Policy", "PolicyRule"])
@pytest.mark.parametrize("what", ["PacketCount", "ByteCount"])
def test_statistics(servers: Pair, what: str, by: str, series: bool) -> None:
    random = Random(f"{SEED}/{what}/{by}/{series}")
    found = 0
    for _ in range(QUESTIONS // 5):
        request = {
            **spans(random),
            "type": what,
            "group_by": by,
            "time_series": series,
            "policy_match": random.choice([{}, lot.match(random, actions=False)]),
        }
        ours, theirs = servers.both("statistics", **request)
        assert in_any_order(ours["items"]) == in_any_order(theirs["items"]), request
        found += len(ours["items"])
    assert found


def test_a_stream_has_what_was_before(servers: Pair) -> None:
    random = Random(SEED)
    for chosen in [{}, *(lot.chosen(random) for _ in range(8))]:
        only = {"start_time_gte": begin(), "filter": chosen}
        expected = sum(
            len(servers.ours("list", filter=chosen, start_time_gte=first,
                             start_time_lt=first + lot.INTERVAL)["items"])
            for first in range(begin(), begin() + AGO, lot.INTERVAL)
        )  # fmt: skip
        if not expected:
            continue
        ours, theirs = (
            one.driver("stream", request=only, count=expected, seconds=60.0)
            for one in (servers.ours, servers.theirs)
        )
        assert len(ours["items"]) == expected
        assert in_any_order(unnumbered(ours)) == in_any_order(unnumbered(theirs)), chosen


def test_whisker_shows_the_same_of_both(servers: Pair) -> None:
    """The server of Calico's web page, once before each."""
    path, random, found = program("whisker-backend"), Random(SEED), 0
    span = {
        "startTimeGte": str(whole()["start_time_gte"]),
        "startTimeLt": str(whole()["start_time_lt"]),
    }
    with (
        whisker(path, servers, servers.ours) as ours,
        whisker(path, servers, servers.theirs) as theirs,
    ):
        for _ in range(QUESTIONS // 5):
            chosen = {"filters": json.dumps(lot.chosen(random, policies=False))}
            order = random.choice(NAMES)
            one, other = (ask("flows", **span, **chosen, sortBy=order) for ask in (ours, theirs))
            assert one == other, chosen
            # Without flows there is no list.
            found += len(one["items"] or [])
            for kind in HINTS:
                assert ours("flows-filter-hints", type=kind, **chosen) == theirs(
                    "flows-filter-hints", type=kind, **chosen
                )
    assert found > FLOWS


@pytest.mark.asyncio
async def test_a_stream_goes_on_with_what_completes(apart: Pair) -> None:
    """Calico's client follows both, while our sender delivers a flow of the running interval."""
    now = int(time.time()) // 15 * 15
    key = replace(next(iter(WORLD.values())).key, port=7777)
    request = {"start_time_gte": begin(), "filter": {"dest_ports": [{"port": 7777}]}}
    streams = [
        asyncio.create_task(one.driver.soon("stream", request=request, count=1, seconds=HANG))
        for one in (apart.ours, apart.theirs)
    ]
    for server in (apart.ours, apart.theirs):
        await delivered(server, [Flow(key, now, now + 15, Counts(packets_in=3))])
    ours, theirs = await asyncio.gather(*streams)
    assert unnumbered(ours) == unnumbered(theirs)
    assert unnumbered(ours)[0]["start_time"] == str(now)


@pytest.mark.asyncio
async def test_our_client_lists_the_running_interval_of_both(apart: Pair) -> None:
    now = int(time.time()) // 15 * 15
    key = replace(next(iter(WORLD.values())).key, port=7778)
    sent = Flow(key, now, now + 15, Counts(packets_in=3))
    for server in (apart.ours, apart.theirs):
        await delivered(server, [sent])
        async with Aggregator(server.place) as goldmane:

            async def listed(goldmane: Aggregator = goldmane) -> list[Flow]:
                found = await goldmane.list(FlowQuery(filter=Filter(ports=(7778,))))
                return [one.flow for one in found.flows]

            await until_asked(listed, "it is listed")
            assert await listed() == [sent]


async def delivered(server: Server, sent: list[Flow]) -> None:
    """Deliver by `Sender`, as felix does, to the last receipt."""
    sender = Sender(server.place, "n1")
    async with tasks.beside(sender.run(), name="sender"):
        sender.offer(sent)
        await until(lambda: sender.counters.received == len(sent), "every receipt")


def test_calicos_sender_says_again_what_a_restart_lost(
    programs: tuple[str, str], tmp_path: Path
) -> None:
    """Its cache of five minutes fills an aggregator of ours that has begun anew."""
    with pair(*programs, tmp_path) as both:
        both.ours.push([plain("before", begin()), plain("before-last", begin())])
        both.restart_ours()
        # It notices at the next flow.
        both.ours.push([plain("after", begin())])
        wait_for(
            lambda: len(both.ours("list", **whole())["items"]) == 3, "all of them are listed again"
        )


# -- our client, and our sender, with Calico's Goldmane -------------------------------------


@pytest.mark.asyncio
async def test_our_client_reads_the_same_of_both(servers: Pair) -> None:
    async with Aggregator(servers.ours.place) as ours, Aggregator(servers.theirs.place) as theirs:
        for order in (SortBy.SOURCE_NAME, SortBy.DESTINATION_NAMESPACE):
            query = FlowQuery(whole()["start_time_gte"], whole()["start_time_lt"], sort=(order,))
            one, other = await ours.list(query), await theirs.list(query)
            assert [seen.flow for seen in one.flows] == [seen.flow for seen in other.flows]
            assert (one.total, one.pages) == (other.total, other.pages)
        for kind in list(HintKind)[1:]:
            hints = HintQuery(kind, whole()["start_time_gte"], whole()["start_time_lt"])
            assert await ours.hints(hints) == await theirs.hints(hints)
        for by in GroupBy:
            figures = StatisticsQuery(
                StatisticKind.BYTES, by, whole()["start_time_gte"], whole()["start_time_lt"]
            )
            assert set(await ours.statistics(figures)) == set(await theirs.statistics(figures))
        nothing = StatisticsQuery(policy=PolicyMatch(name=Text("unknown")))
        assert await theirs.statistics(nothing) == ()
        with pytest.raises(AggregatorError, match="unknown service"):
            await theirs.nodes()


@pytest.mark.asyncio
async def test_our_felix_delivers_to_both(apart: Pair) -> None:
    """By its outputs, as its parameters name the aggregator: both have what it sent."""
    sent = [
        Flow(replace(one.key, port=7000 + number), begin(), begin() + 15, one.counts,
             one.source_labels, one.destination_labels)
        for number, one in enumerate(WORLD.values())
    ]  # fmt: skip
    ports = Filter(ports=tuple(one.key.port for one in sent))
    for server in (apart.ours, apart.theirs):
        place, outputs = server.place, Outputs("n1")
        outputs.want(Wanted(place.address, place.ca, place.certificate, place.key))
        async with Aggregator(place) as goldmane:

            async def all_listed(goldmane: Aggregator = goldmane, to: Outputs = outputs) -> bool:
                # What was offered before counts once.
                await to.offer(sent)
                return (await goldmane.list(FlowQuery(filter=ports))).total == len(sent)

            await until_asked(all_listed, "every flow is listed")
            assert outputs.conditions() == []
            outputs.stop()
            listing = await goldmane.list(FlowQuery(filter=ports))
            assert {one.flow for one in listing.flows} == set(sent)
            stream = goldmane.stream(ports, begin())
            assert {(await anext(stream)).flow for _ in sent} == set(sent)
            await stream.aclose()


def test_calicoctl_shows_the_same_of_both(
    servers: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = in_this_process(monkeypatch, capfd)
    for more in (["-o", "json"], ["-o", "wide"], [], ["--verdict", "deny"], ["--port", "5432"],
                 ["--from", "shop/web"], ["--to", "public"], ["--policy", "open"]):  # fmt: skip
        said = []
        for server in (servers.ours, servers.theirs):
            place = server.place
            done = run(
                *("flows", "--aggregator", place.address, "--aggregator-ca", place.ca),
                *("--aggregator-cert", place.certificate, "--aggregator-key", place.key),
                *("--since", "59m", "--limit", "100000", *more),
            )
            assert done.code == 0, done.err
            said.append((sorted(done.out.splitlines()), done.err))
        assert said[0] == said[1]
        assert said[0][0]


# -- what is different on purpose --------------------------------------------------------------


def plain(name: str, start: int, **more: Any) -> Message:
    """A flow of two pods, of one interval, with counts of one."""
    key = {
        "source_type": "WorkloadEndpoint", "source_name": name, "source_namespace": "apart",
        "dest_type": "WorkloadEndpoint", "dest_name": "db-*", "dest_namespace": "shop-data",
        "dest_port": 80, "dest_service_name": "-", "dest_service_namespace": "-",
        "dest_service_port_name": "-", "proto": "tcp", "reporter": "Src", "action": "Allow",
        "policies": {},
    }  # fmt: skip
    key.update({part: more.pop(part) for part in list(more) if part in key})
    return {"Key": key, "start_time": start, "end_time": start + 15, "packets_in": 1} | more


def only(name: str, **more: Any) -> Message:
    """The request for a flow of `plain`."""
    return whole() | {"filter": {"source_names": [{"value": name}]}} | more


def hit(name: str, action: str = "Allow", **more: Any) -> Message:
    named = {"kind": "GlobalNetworkPolicy", "tier": "default", "name": name, "action": action}
    return named | more


def test_live_connections_are_not_added_up_over_time(apart: Pair) -> None:
    trace = {"enforced_policies": [hit("living")]}
    apart.push([
        plain("live", begin(), num_connections_live=3, policies=trace),
        plain("live", begin() + 15, num_connections_live=2, policies=trace),
        plain("live-last", begin()),
    ])  # fmt: skip
    ours, theirs = apart.both("list", **only("live"))
    live = [unnumbered(answer)[0]["num_connections_live"] for answer in (ours, theirs)]
    assert live == ["2", "5"]
    match = {"name": {"value": "living"}}
    request = {**whole(), "type": "LiveConnectionCount", "policy_match": match}
    ours, theirs = apart.both("statistics", **request)
    assert [answer["items"][0]["allowed_out"] for answer in (ours, theirs)] == [["2"], ["5"]]
    ours, theirs = apart.both("statistics", **request, time_series=True)
    assert ours == theirs


def test_labels_that_an_interval_lacks_are_gone(apart: Pair) -> None:
    apart.push([
        plain("labels", begin(), source_labels=["app=a"]),
        plain("labels", begin() + 15),
        plain("labels", begin() + 30, source_labels=["app=b"]),
        plain("labels-last", begin()),
    ])  # fmt: skip
    ours, theirs = apart.both("list", **only("labels"))
    assert "source_labels" not in unnumbered(ours)[0]
    assert unnumbered(theirs)[0]["source_labels"] == ["app=b"]


def test_the_end_of_a_tier_is_found_by_its_trigger(apart: Pair) -> None:
    trigger = {key: value for key, value in hit("trigger").items() if key != "action"}
    end = {"kind": "EndOfTier", "tier": "default", "action": "Deny", "rule_index": -1,
           "trigger": trigger}  # fmt: skip
    trace = {"enforced_policies": [end], "pending_policies": [end]}
    apart.push([plain("ended", begin(), policies=trace), plain("ended-last", begin())])
    ours, theirs = apart.both("list", **only("ended"))
    assert unnumbered(ours) == unnumbered(theirs)
    for what in ("PolicyTier", "PolicyName", "PolicyKind", "PolicyNamespace"):
        ours, theirs = apart.both("hints", **only("ended", type=f"FilterType{what}"))
        assert ours == theirs
    match = {"name": {"value": "trigger"}}
    chosen = {"source_names": [{"value": "ended"}], "policies": [match]}
    ours, theirs = apart.both("list", filter=chosen)
    assert [len(answer["items"]) for answer in (ours, theirs)] == [1, 0]
    ours, theirs = apart.both("statistics", **whole(), policy_match=match)
    assert ours == theirs
    ours, theirs = apart.both("statistics", **whole(), policy_match=match, group_by="PolicyRule")
    numbers = [answer["items"][0]["policy"].get("rule_index") for answer in (ours, theirs)]
    assert numbers == ["-1", None]


def test_rules_are_told_apart_by_their_own_number(apart: Pair) -> None:
    def trace(index: int, rule: int) -> Message:
        return {"enforced_policies": [hit("ruled", policy_index=index, rule_index=rule)]}

    apart.push([
        plain("rule-1", begin(), policies=trace(0, 1)),
        plain("rule-2", begin(), policies=trace(0, 2)),
        plain("rule-last", begin()),
    ])  # fmt: skip
    match = {"name": {"value": "ruled"}}
    ours, theirs = apart.both("statistics", **whole(), policy_match=match, group_by="PolicyRule")
    numbers = [
        [one["policy"].get("rule_index", "0") for one in answer["items"]]
        for answer in (ours, theirs)
    ]
    assert numbers == [["1", "2"], ["0"]]
    ours, theirs = apart.both("statistics", **whole(), policy_match=match)
    assert ours == theirs


def test_statistics_by_what_a_rule_did(apart: Pair) -> None:
    trace = {"enforced_policies": [hit("judging", "Deny")]}
    apart.push([plain("judged", begin(), policies=trace), plain("judged-last", begin())])
    match = {"name": {"value": "judging"}, "action": "Deny"}
    ours, theirs = apart.both("statistics", **whole(), policy_match=match)
    assert [len(answer["items"]) for answer in (ours, theirs)] == [1, 0]


@pytest.mark.asyncio
async def test_hits_in_another_order_are_the_same_flow(apart: Pair) -> None:
    """Felix of Calico before v3.32 sends them as a set has them; both list them in order."""
    hits = [hit("first", "Pass", policy_index=0), hit("second", policy_index=1)]
    sent = [
        plain("order", begin(), policies={"enforced_policies": hits}),
        plain("order", begin(), policies={"enforced_policies": hits[::-1]}, end_time=begin() + 14),
    ]
    for server in (apart.ours, apart.theirs):
        async with channel(server.place) as link:
            call = goldmane_pb2_grpc.FlowCollectorStub(link).Connect()
            for one in sent:
                await call.write(ParseDict({"flow": one}, pb.FlowUpdate()))
                assert await call.read() == pb.FlowReceipt()
            await call.done_writing()
    apart.push([plain("order-last", begin())])
    ours, theirs = apart.both("list", **only("order"))
    assert [one["packets_in"] for one in unnumbered(ours)] == ["2"]
    assert [one["packets_in"] for one in unnumbered(theirs)] == ["1", "1"]
    for one in (*unnumbered(ours), *unnumbered(theirs)):
        names = [each["name"] for each in one["Key"]["policies"]["enforced_policies"]]
        assert names == ["first", "second"]


def test_no_namespace_is_a_dash(apart: Pair) -> None:
    apart.push([
        plain("nowhere", begin(), dest_namespace="", dest_service_name=""),
        plain("nowhere-last", begin()),
    ])  # fmt: skip
    ours, theirs = apart.both("list", **only("nowhere"))
    key = unnumbered(ours)[0]["Key"]
    assert (key["dest_namespace"], key["dest_service_name"]) == ("-", "-")
    assert "dest_namespace" not in unnumbered(theirs)[0]["Key"]


def test_an_interval_that_the_span_cuts(apart: Pair) -> None:
    """Goldmane lists it without time and counts where the end cuts it. Its statistics have it
    where the start does."""
    trace = {"enforced_policies": [hit("cutting")]}
    apart.push([plain("cut", begin(), policies=trace), plain("cut-last", begin())])
    ours, theirs = apart.both("list", **only("cut", start_time_lt=begin() + 7))
    assert unnumbered(ours)[0]["start_time"] == str(begin())
    assert "start_time" not in unnumbered(theirs)[0]
    assert "packets_in" not in unnumbered(theirs)[0]
    match = {"name": {"value": "cutting"}}
    for start, end, found in ((7, 15, [0, 1]), (0, 7, [1, 0])):
        span = {"start_time_gte": begin() + start, "start_time_lt": begin() + end + 0}
        ours, theirs = apart.both("statistics", **span, policy_match=match)
        assert [len(answer["items"]) for answer in (ours, theirs)] == found


def test_orders_that_goldmane_does_not_have(servers: Pair) -> None:
    for orders in (["SourceType"], ["DestType"], ["SourceName", "DestName"]):
        request = {**whole(), "sort_by": [{"sort_by": one} for one in orders]}
        assert len(servers.ours("list", **request)["items"])
        with pytest.raises(Refusal):
            servers.theirs("list", **request)


def test_a_page_beyond_the_last(servers: Pair) -> None:
    ours, theirs = servers.both("list", **whole(), page=1000, page_size=10)
    assert ours["items"] == theirs["items"] == []
    assert int(ours["meta"]["totalResults"]) > 0
    assert theirs["meta"] == {}


REFUSED: dict[str, tuple[str, Message, bool]] = {
    "a start behind the end": ("list", {"start_time_gte": 20, "start_time_lt": 10}, True),
    "a start behind the end of hints": (
        "hints", {"start_time_gte": 20, "start_time_lt": 10, "type": "FilterTypeDestName"}, True,
    ),
    "hints of nothing": ("hints", {}, True),
    "statistics that end before": ("statistics", {"start_time_gte": 20, "start_time_lt": 10}, True),
    "an interval of 20 seconds": ("list", {"aggregation_interval": 20}, False),
    "a page without a size": ("list", {"page": 1}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(servers: Pair, case: str) -> None:
    """Ours says INVALID_ARGUMENT and the field; Goldmane says UNKNOWN, and takes some."""
    op, request, both = REFUSED[case]
    request = request if both else whole() | request
    with pytest.raises(Refusal, match=r"InvalidArgument|is not valid"):
        servers.ours(op, **request)
    if both:
        with pytest.raises(Refusal):
            servers.theirs(op, **request)
    else:
        servers.theirs(op, **request)
