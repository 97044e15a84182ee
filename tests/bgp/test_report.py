"""CalicoNodeStatus: what a node says of itself, when, and in which requests (real etcd)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, cast

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bgp.agent.bird_world import AgentWorld
from bgp.agent.report import Reporter, report
from bgp.decide.routing import used_together
from bgp.sessions.diagnosis import Cause, Diagnosis
from bgp.sessions.metrics import Metrics
from bgp.speaker.interface import Announced, Attributes, Family, PathsReceived, Peer, PeerUp
from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore, Entry, Put
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.nodestatus import CalicoNodeStatusStatus
from libcalico.model.validation.validate import problems
from libcalico.process.counters import Registry
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.bgp.memory_speaker import MemorySpeaker
from tests.support.etcd import Etcd
from tests.support.patience import HANG, until

pytestmark = pytest.mark.asyncio
N1, TOR = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.253")


async def cluster_of_two() -> Cluster:
    cluster = Cluster()
    for name in ("n1", "n2"):
        cluster.add(name)
    router = MemorySpeaker(cluster.fabric)
    await router.configure([Peer(N1, 64512, TOR, 64500, TOR, (Family.IPV4,))])
    await cluster.say(
        node(1, ipv6Address="fd00::1/64"),
        node(2, ipv6Address="fd00::2/64"),
        resource("IPPool", "pods", {"cidr": "10.65.0.0/16"}),
        resource("BGPPeer", "tor", {"peerIP": str(TOR), "asNumber": 64500}),
        resource("BGPPeer", "gone", {"peerIP": "fd00::fe", "asNumber": 64500, "node": "n1"}),
        affinity("n1", "10.65.1.0/26"),
        affinity("n2", "10.65.2.0/26"),
    )
    offered = tuple(Announced(ip_network(net), TOR) for net in ("10.65.2.0/26", "10.200.0.0/24"))
    attributes = Attributes(as_path=(64500,), as_path_length=1)
    cluster.agents["n1"].on_event(PathsReceived(TOR, attributes, offered))
    return cluster


@pytest.mark.promise("F-56")
async def test_what_is_reported() -> None:
    cluster = await cluster_of_two()
    agent = cluster.agents["n1"]
    found = report(agent, ["Agent", "BGP", "Routes"], "2026-01-02T03:04:05Z")
    assert found.lastUpdated == "2026-01-02T03:04:05Z"
    assert (found.agent.birdV4.state, found.agent.birdV6.state) == ("NotReady", "NotReady")
    assert found.agent.birdV4.routerID == "10.0.0.1"
    assert found.agent.birdV4.lastBootTime == agent.started
    assert [(each.peerIP, each.type, each.state) for each in found.bgp.peersV4] == [
        ("10.0.0.2", "NodeMesh", "Established"),
        ("10.0.0.253", "GlobalPeer", "Established"),
    ]
    assert [(each.peerIP, each.type, each.state) for each in found.bgp.peersV6] == [
        ("fd00::2", "NodeMesh", "Established"),
        ("fd00::fe", "NodePeer", "Connect"),
    ]
    assert found.bgp.numberEstablishedV4 == 2
    assert (found.bgp.numberEstablishedV6, found.bgp.numberNotEstablishedV6) == (1, 1)
    routes = {
        (one.type, one.destination, one.gateway, one.learnedFrom.sourceType)
        for one in found.routes.routesV4
    }
    assert routes == {
        ("FIB", "10.65.1.0/26", "", "Static"),
        ("FIB", "10.65.2.0/26", "10.0.0.2", "NodeMesh"),
        ("RIB", "10.65.2.0/26", str(TOR), "BGPPeer"),
        ("FIB", "10.200.0.0/24", str(TOR), "BGPPeer"),
    }
    only = report(agent, ["BGP"])
    assert only.bgp == found.bgp
    nothing = CalicoNodeStatusStatus()
    assert (only.agent, only.routes) == (nothing.agent, nothing.routes)
    agent.gate.passed = True
    assert report(agent, ["Agent"]).agent.birdV6.state == "Ready"
    await cluster.stop()


async def test_a_way_that_an_operator_named_is_static_and_what_felix_does_not_get_is_rib() -> None:
    """`reachableBy`: its route is felix's, whatever the peer itself says of that prefix."""
    cluster = await cluster_of_two()
    tor = {"peerIP": str(TOR), "asNumber": 64500, "reachableBy": "10.0.0.254"}
    await cluster.say(resource("BGPPeer", "tor", tor))
    agent = cluster.agents["n1"]
    await until(lambda: agent.sessions.up(TOR), "the session is up again")

    def told(prefix: str) -> set[tuple[str, str, str]]:
        return {
            (one.type, one.gateway, one.learnedFrom.sourceType)
            for one in report(agent, ["Routes"]).routes.routesV4
            if one.destination == prefix
        }

    static = ("FIB", "10.0.0.254", "Static")
    assert told(f"{TOR}/32") == {static}
    attributes = Attributes(as_path=(64500,), as_path_length=1)
    offered = (Announced(ip_network(f"{TOR}/32"), TOR),)
    agent.on_event(PathsReceived(TOR, attributes, offered))
    assert told(f"{TOR}/32") == {static, ("RIB", str(TOR), "BGPPeer")}
    world = AgentWorld(agent, 4)
    assert ip_network(f"{TOR}/32") in world.prefixes()
    way, learned = world.routes(ip_network(f"{TOR}/32"))
    assert (way.protocol, way.target, way.hops[0][0]) == ("static1", "unicast", "10.0.0.254")
    assert (way.primary, learned.primary) == (True, False)
    routing = agent.routing
    (path,) = routing.rib.taken(ip_network("10.200.0.0/24"))
    inside = replace(path, source=replace(path.source, in_cluster=True, peer=N1))
    assert used_together([path, inside]) == [path], "two kinds of origin are not mixed"
    await cluster.stop()


async def test_metrics_of_each_peer() -> None:
    """A gauge or counter for each peer; the cause of one that is down; none of a peer gone."""
    cluster = await cluster_of_two()
    agent = cluster.agents["n1"]
    registry = Registry()
    agent.metrics = agent.sessions._metrics = Metrics(registry)
    gone = ip_address("fd00::fe")
    agent.doctor.diagnoses[gone] = Diagnosis(Cause.REFUSED, "seen", "fix")
    agent.on_event(PeerUp(TOR, agent.sessions.planned[TOR].peer))
    agent.describe()

    def value(name: str, **labels: str) -> float | None:
        families = text_string_to_metric_families(registry.page().decode())
        samples = [sample for family in families for sample in family.samples]
        found = [
            one.value for one in samples if (one.name, one.labels) == (f"calico_bgp_{name}", labels)
        ]
        return found[0] if found else None

    assert value("peer_up", peer=str(TOR), type="global", asn="64500") == 1
    assert value("peer_up", peer=str(gone), type="node specific", asn="64500") == 0
    assert value("paths_received", peer=str(TOR)) == 2
    assert value("paths_sent", peer=str(TOR)) == 0
    assert value("peer_ups_total", peer=str(TOR)) == 1
    assert value("peer_cause", peer=str(gone), cause="refused") == 1
    assert value("peer_cause", peer=str(TOR), cause="refused") is None
    since = value("peer_since_seconds", peer=str(TOR))
    assert since is not None
    assert abs(time.time() - since) < 60
    await cluster.say((ResourceKey("BGPPeer", "tor"), None))
    agent.describe()
    assert value("peer_ups_total", peer=str(TOR)) is None
    assert value("paths_received", peer=str(TOR)) is None
    await cluster.stop()


def request(name: str, period: int, node: str = "n1") -> tuple[Any, Any]:
    spec = {"node": node, "classes": ["Agent", "BGP", "Routes"], "updatePeriodSeconds": period}
    return resource("CalicoNodeStatus", name, spec)


async def test_requests_that_go_while_answers_are_written() -> None:
    """Neither the one that is being answered nor the next one stops the reporter."""
    cluster = await cluster_of_two()
    requests, written = [request("one", 1), request("two", 1)], asyncio.Event()

    def told(*, gone: bool) -> SyncBatch:
        return SyncBatch(
            [Update(key, None if gone else Entry(key, value, 1, b"")) for key, value in requests],
            True,
        )

    class Store:
        """Both requests go while the first answer is written."""

        async def commit(self, _: object) -> None:
            reporter.apply_batch(told(gone=True), time.monotonic())
            written.set()

    reporter = Reporter(cluster.agents["n1"], cast("Datastore", Store()))
    reporter.apply_batch(told(gone=False), time.monotonic())
    answering = asyncio.create_task(reporter._answer())
    await asyncio.wait_for(written.wait(), HANG)
    await cluster.calm()
    assert not answering.done()
    assert reporter._due == {}
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    await cluster.stop()


async def test_a_request_that_changes_while_it_is_answered_is_answered_again() -> None:
    """Its answer is on the disk when it changes, and on its way back to us."""
    cluster = await cluster_of_two()
    spoken = []

    class Store:
        """The request asks for something else, once, before the first commit returns."""

        async def commit(self, changes: Any) -> None:
            spoken.append(changes[0].value.spec.classes)
            if len(spoken) == 1:
                key, value = request("one", 0)
                other = msgspec.structs.replace(value.spec, classes=["BGP"])
                entry = Entry(key, msgspec.structs.replace(value, spec=other), 2, b"")
                reporter.apply_batch(SyncBatch([Update(key, entry)], True), time.monotonic())

    reporter = Reporter(cluster.agents["n1"], cast("Datastore", Store()))
    key, value = request("one", 0)
    reporter.apply_batch(
        SyncBatch([Update(key, Entry(key, value, 1, b""))], True), time.monotonic()
    )
    answering = asyncio.create_task(reporter._answer())
    await until(lambda: len(spoken) == 2, "both answers")
    assert spoken == [["Agent", "BGP", "Routes"], ["BGP"]]
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    await cluster.stop()


async def test_a_single_report_that_cannot_be_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its request has no period: no other moment would come."""
    monkeypatch.setattr("bgp.agent.report.RETRY", 0.01)
    cluster = await cluster_of_two()
    tries = []

    class Store:
        """It is away at first."""

        async def commit(self, changes: Any) -> None:
            tries.append(changes)
            if len(tries) == 1:
                raise MuslinError("it is away")

    reporter = Reporter(cluster.agents["n1"], cast("Datastore", Store()))
    reporter.apply_batch(told_of(request("one", 0)), time.monotonic())
    answering = asyncio.create_task(reporter._answer())
    await until(lambda: len(tries) == 2, "the second try")
    await cluster.calm()
    assert reporter._due == {}
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    await cluster.stop()


async def test_a_report_that_is_frozen_is_not_written_once_more() -> None:
    """A period of 0 holds from when it is told, not after the period before."""
    cluster = await cluster_of_two()
    reporter = Reporter(cluster.agents["n1"], cast("Datastore", None))
    for period, due in ((60, True), (0, False), (60, True)):
        key, value = request("one", period)
        written = CalicoNodeStatusStatus(lastUpdated="2026-01-02T03:04:05Z")
        answered = msgspec.structs.replace(value, status=written)
        reporter.apply_batch(told_of((key, answered)), 5.0)
        assert (key in reporter._due) is due
    await cluster.stop()


def told_of(told: tuple[Any, Any]) -> SyncBatch:
    return SyncBatch([Update(told[0], Entry(*told, 1, b""))], True)


@pytest.mark.promise("F-56")
async def test_requests_are_answered_in_the_datastore(etcd: Etcd) -> None:
    """Mine at once and again after its period; a frozen one once; another node's never."""
    cluster = await cluster_of_two()
    store = await connect(apiconfig.load(None, etcd.environment()))
    requests = [request("mine", 1), request("frozen", 0), request("theirs", 1, "n2")]
    await store.commit([Put(key, value) for key, value in requests])
    task = asyncio.create_task(Reporter(cluster.agents["n1"], store).run())

    async def status(name: str) -> CalicoNodeStatusStatus:
        entry = await store.get(ResourceKey("CalicoNodeStatus", name))
        assert entry is not None
        found: CalicoNodeStatusStatus = entry.value.status
        return found

    async def until(name: str, check: Any) -> CalicoNodeStatusStatus:
        async with asyncio.timeout(HANG):
            while not check(found := await status(name)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return found

    first = await until("mine", lambda found: found.lastUpdated)
    assert first.bgp.numberEstablishedV4 == 2
    frozen = await until("frozen", lambda found: found.lastUpdated)
    later = await until("mine", lambda found: found.lastUpdated != first.lastUpdated)
    assert later.bgp == first.bgp
    assert await status("frozen") == frozen
    assert (await status("theirs")).lastUpdated is None
    # Another request is answered at once, whatever the period was.
    key, changed = request("frozen", 0)
    entry = await store.get(key)
    assert entry is not None
    assert problems(entry.value) == []
    changed.spec.classes.remove("Routes")
    await store.commit([Put(key, changed)])
    again = await until("frozen", lambda found: found.lastUpdated)
    assert again.routes.routesV4 == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    await cluster.stop()
