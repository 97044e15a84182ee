"""`policy recommend`: from flows to policies that apply, with the plan that proves them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import grpc.aio
import pytest
import yaml
from msgspec.structs import replace

from calicoctl.recommending import sources
from calicoctl.recommending.sources import from_aggregator
from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc
from flows.messages import flow_message
from flows.place import Place
from flows.record import PUBLIC, Action, End, EndKind, Flow, Key, Reporter
from flows.written import line
from tests.calicoctl.conftest import Ctl
from tests.flows.running import NOW, aggregator
from tests.flows.test_client import deliver
from tests.support.explain_world import SHOP

WEB, DB = (End(EndKind.WORKLOAD, name, "shop") for name in ("web-*", "db-*"))
OUT = End(EndKind.NETWORK, PUBLIC)
FLOWS = [
    Flow(Key(WEB, DB, 5432, "tcp", Reporter.SOURCE, Action.ALLOW), 0, 15),
    Flow(Key(WEB, DB, 5432, "tcp", Reporter.DESTINATION, Action.ALLOW), 0, 15),
    Flow(Key(DB, OUT, 443, "tcp", Reporter.SOURCE, Action.ALLOW), 0, 15),
    Flow(Key(WEB, DB, 22, "tcp", Reporter.DESTINATION, Action.DENY), 0, 15),
]


@pytest.fixture
def shop(ctl: Ctl) -> Ctl:
    """The shop, applied."""
    documents = [d for d in SHOP if d["kind"] != "Tier"]
    done = ctl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))
    assert done.code == 0, done.err
    return ctl


@pytest.fixture
def seen(tmp_path: Path) -> str:
    """A file of flows."""
    path = tmp_path / "flows.jsonl"
    path.write_bytes(b"".join(line(flow).rstrip(b"\n") + b"\n" for flow in FLOWS))
    return str(path)


def recommended(shop: Ctl, *arguments: str) -> tuple[str, str]:
    done = shop("policy", "recommend", "-n", "shop", *arguments)
    assert done.code == 0, done.err
    return done.out, done.err


def test_what_it_writes_applies_and_forbids_what_it_said(shop: Ctl, seen: str) -> None:
    out, err = recommended(shop, "--from", seen)
    names = [d["metadata"]["name"] for d in yaml.safe_load_all(out)]
    assert names == ["recommended-db", "recommended-web"]
    assert "proved: none of 2 ends of connections that it allows would be denied" in err
    assert "*** NOT allowed, though seen: 1 end of a connection" in err
    assert "--allow-public" in err
    assert "2 ends of connections only ever denied" in err
    assert "Would be DENIED:" in err
    assert shop("policy", "plan", "-f", "-", stdin=out).out.startswith("Would be DENIED:")
    assert shop("apply", "-f", "-", stdin=out).code == 0
    asked = ("explain", "shop/web-0", "shop/db-0", "--port")
    assert ": ALLOWED" in shop(*asked, "5432").out
    assert ": DENIED" in shop(*asked, "5433").out
    assert "No flow between pods" in shop("policy", "plan", "-f", "-", stdin=out).out


def test_choices_are_taken(shop: Ctl, seen: str) -> None:
    out, err = recommended(shop, "--from", seen, "--network", "203.0.113.0/24")
    assert "203.0.113.0/24" in out
    assert "NOT allowed" not in err
    out, _ = recommended(shop, "--from", seen, "--allow-public", "--staged")
    assert "kind: StagedNetworkPolicy" in out
    assert "0.0.0.0/0" in out
    assert shop("apply", "-f", "-", stdin=out).code == 0


def test_everything_as_json(shop: Ctl, seen: str) -> None:
    out, _ = recommended(shop, "--from", seen, "-o", "json")
    tree = json.loads(out)
    assert [policy["kind"] for policy in tree["policies"]] == ["NetworkPolicy"] * 2
    assert tree["proof"]["denied"] == []
    assert tree["proof"]["packets"] > 0
    assert tree["plan"]["whole"] is True
    assert {change["becomes"] for change in tree["plan"]["changes"]} == {"denied"}
    assert tree["leftOut"][0]["talk"]["peer"] == {"kind": "network", "namespace": "", "name": "pub"}


def test_kubernetes_policies(shop: Ctl, seen: str) -> None:
    out, _ = recommended(shop, "--from", seen, "--kubernetes")
    kinds = {(d["apiVersion"], d["kind"]) for d in yaml.safe_load_all(out)}
    assert kinds == {("networking.k8s.io/v1", "NetworkPolicy")}


class _Shuffling(goldmane_pb2_grpc.FlowsServicer):  # type: ignore[misc]
    """Lists as Goldmane does: flows of one start in another order each time, names in order."""

    async def List(self, request: pb.FlowListRequest, context: object) -> pb.FlowListResult:
        """A page of `FLOWS`."""
        results = [pb.FlowResult(id=n, flow=flow_message(one)) for n, one in enumerate(FLOWS)]
        if request.sort_by and request.sort_by[0].sort_by == pb.SourceName:
            results.sort(key=lambda one: (one.flow.Key.source_name, one.id))
        else:
            results = results[request.page :] + results[: request.page]
        size = request.page_size
        page = results[request.page * size : (request.page + 1) * size]
        meta = pb.ListMetadata(totalPages=-(-len(results) // size), totalResults=len(results))
        return pb.FlowListResult(meta=meta, flows=page)


@pytest.mark.asyncio
async def test_every_flow_is_on_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PAGE", 2)
    server = grpc.aio.server()
    goldmane_pb2_grpc.add_FlowsServicer_to_server(_Shuffling(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    listed = await from_aggregator(Place(f"127.0.0.1:{port}"), "shop", 0)
    await server.stop(None)
    assert Counter(listed) == Counter([*FLOWS, *FLOWS]), "by source, and by destination"


@pytest.mark.asyncio
async def test_the_aggregator_is_asked_for_both_ends_of_a_namespace() -> None:
    now = NOW - NOW % 15
    other = End(EndKind.WORKLOAD, "other", "lab")
    beside = Flow(Key(other, OUT, 443, "tcp", Reporter.SOURCE, Action.ALLOW), 0, 15)
    times = [replace(flow, start=now - 30, end=now - 15) for flow in (*FLOWS, beside)]
    async with aggregator() as running:
        await deliver(running, times)
        for seconds, found in ((0, FLOWS), (900, FLOWS), (1, [])):
            listed = await from_aggregator(running.place, "shop", seconds)
            assert {flow.key for flow in listed} == {flow.key for flow in found}


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (("-n", "shop"), "", "an --aggregator HOST:PORT"),
        (("-n", "shop", "--from", "/nowhere/flows"), "", "flows cannot be read from /nowhere"),
        (("-n", "shop", "--from", "-"), "{", "-, line 1"),
        (("-n", "shop", "--from", "-"), "", "no allowed flow of workloads of namespace shop"),
        (("-n", "shop", "--from", "-", "--network", "10.0.0.1/8"), "", "--network"),
        (("-n", "shop", "--aggregator", "127.0.0.1:1"), "", "127.0.0.1:1"),
        (("-n", "shop", "--aggregator", "127.0.0.1:1", "--aggregator-ca", "x"), "", "certificate"),
        ((), "", "--namespace"),
    ],
)
def test_what_cannot_be_recommended_is_said(
    shop: Ctl, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], stdin: str,
    sentence: str,
) -> None:  # fmt: skip
    import io

    monkeypatch.setattr("calicoctl.recommending.sources.sys.stdin", io.StringIO(stdin))
    done = shop("policy", "recommend", *arguments)
    assert done.code != 0
    assert sentence in done.err
    assert "Traceback" not in done.err
