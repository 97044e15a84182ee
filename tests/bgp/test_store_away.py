"""A restart while the datastore is away: what was announced and passed on stays so."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from bgp.agent.agent import Agent
from bgp.agent.saved_decisions import SavedDecisions
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.speaker.interface import Announced, Attributes, PathsReceived, Withdrawn
from libcalico.local.node_api import Fact
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.support.patience import until

pytestmark = pytest.mark.asyncio

POOL = resource("IPPool", "pods", {"cidr": "10.65.0.0/16"})
SERVICES = "10.96.0.0/12"
OWN, OTHER = "10.65.1.0/26", "10.65.2.0/26"
NODES = (node(1), node(2), POOL, affinity("n1", OWN), affinity("n2", OTHER))


class Story:
    """A cluster in which n1 has a memory, and starts again."""

    def __init__(self, folder: Path, *others: str) -> None:
        self.cluster, self._file = Cluster(), folder / "last.json"
        self.n1 = self.cluster.add("n1", memory=SavedDecisions(self._file))
        for name in others:
            self.cluster.add(name)

    async def again(self) -> Agent:
        """Another life of n1, to which the datastore says nothing."""
        await self.cluster.speakers["n1"].close()
        await self.cluster.calm()
        self.n1 = self.cluster.add("n1", memory=SavedDecisions(self._file))
        await self.n1.remember(0)
        await self.cluster.calm()
        return self.n1

    def announced(self) -> set[str]:
        return {str(route.prefix) for route in self.n1.routing.routes()}


async def test_own_routes_outlive_what_others_say_of_their_prefixes(tmp_path: Path) -> None:
    """A range of services is announced by every node, and felix is told of no way to another."""
    story = Story(tmp_path, "n2")
    ranges = resource("BGPConfiguration", "default", {"serviceClusterIPs": [{"cidr": SERVICES}]})
    await story.cluster.say(*NODES, ranges)
    before = story.announced()
    assert before == {OWN, SERVICES}
    agent = await story.again()
    assert agent.sessions.complete(ip_address("10.0.0.2"))
    assert story.announced() == before
    assert story.cluster.table("n1") == {OTHER: ["10.0.0.2"]}
    net = ip_network(OWN)
    looped = Attributes(originator_id=ip_address("10.0.0.1"))  # type: ignore[arg-type]
    announced = Announced(net, ip_address("10.0.0.1"))
    agent.on_event(PathsReceived(ip_address("10.0.0.2"), looped, (announced,)))
    agent.on_event(PathsReceived(ip_address("10.0.0.2"), Attributes(), (), (Withdrawn(net),)))
    await story.cluster.calm()
    assert story.cluster.table("n2") == {OWN: ["10.0.0.1"]}
    await story.cluster.say(*NODES, ranges)
    assert agent.in_sync
    assert story.announced() == before
    await story.cluster.stop()


async def test_a_reflector_reflects(tmp_path: Path) -> None:
    story = Story(tmp_path, "n2", "n3")
    picture = (
        node(1, routeReflectorClusterID="1.0.0.1", labels={"rr": "yes"}),
        *(node(2), node(3), POOL, affinity("n2", OTHER), affinity("n3", "10.65.3.0/26")),
        resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False}),
        resource("BGPPeer", "rr", {"nodeSelector": "all()", "peerSelector": "rr == 'yes'"}),
    )
    await story.cluster.say(*picture)
    others = {"n2": {"10.65.3.0/26": ["10.0.0.3"]}, "n3": {OTHER: ["10.0.0.2"]}}
    assert {name: story.cluster.table(name) for name in others} == others
    agent = await story.again()
    assert agent.describe()["peers"][0]["stale"] == 0
    for name in others:
        (peer,) = story.cluster.agents[name].describe()["peers"]
        assert (peer["received"], peer["stale"]) == (1, 0), "told anew, End-of-RIB and all"
    assert {name: story.cluster.table(name) for name in others} == others
    await story.cluster.say(*picture)
    assert {name: story.cluster.table(name) for name in others} == others
    await story.cluster.stop()


async def test_a_reflector_does_not_wait_for_another_one(tmp_path: Path) -> None:
    """Which may have started at the same time, and waits for this one."""
    story = Story(tmp_path, "n2", "n3")
    await story.cluster.say(
        node(1, routeReflectorClusterID="1.0.0.1", labels={"rr": "yes"}),
        node(2, routeReflectorClusterID="1.0.0.2", labels={"rr": "yes"}),
        *(node(3), POOL, affinity("n3", OTHER)),
        resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False}),
        resource("BGPPeer", "rr", {"nodeSelector": "all()", "peerSelector": "rr == 'yes'"}),
    )
    await story.cluster.speakers["n2"].close()
    agent = await story.again()
    assert agent.sessions.complete(ip_address("10.0.0.3"))
    assert agent.sessions.clients.passed
    assert not agent.gate.passed
    await story.cluster.stop()


async def test_filters_know_the_interfaces_that_felix_names_later(tmp_path: Path) -> None:
    story = Story(tmp_path, "n2")
    rule = {"action": "Reject", "interface": "eth0"}
    peer = {"peerIP": "10.0.0.2", "asNumber": 64512, "node": "n1", "filters": ["other"]}
    await story.cluster.say(
        *NODES,
        resource("BGPFilter", "other", {"importV4": [rule]}),
        resource("BGPPeer", "n2", peer),
    )
    assert story.cluster.table("n1") == {OTHER: ["10.0.0.2"]}
    agent = await story.again()
    assert story.cluster.table("n1") == {OTHER: ["10.0.0.2"]}
    agent.on_felix(Fact(["10.0.0.1"], {"10.0.0.0/24": "eth0"}))
    assert story.cluster.table("n1") == {}
    assert agent.routing.terms.interface(ip_address("10.0.0.9")) == "eth0", "for export, too"
    assert story.announced() == {OWN}
    await story.cluster.stop()


async def test_a_session_that_was_given_up_is_not_remembered(tmp_path: Path) -> None:
    story = Story(tmp_path, "n2", "n3")
    handover = story.n1.handover = MakeBeforeBreak(linger=0, limit=0)
    await story.cluster.say(*NODES, node(3))
    others = [ip_address("10.0.0.2"), ip_address("10.0.0.3")]
    assert [each.peer.address for each in story.n1.plan.peers] == others
    peer = {"peerIP": "10.0.0.3", "asNumber": 64512, "node": "n1"}
    mesh = resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    await story.cluster.say(mesh, resource("BGPPeer", "n3", peer))
    await until(lambda: not handover.kept, "the end of the mesh")
    assert [each.peer.address for each in story.n1.plan.peers] == others[1:]
    agent = await story.again()
    assert [each.peer.address for each in agent.plan.peers] == others[1:]
    assert agent.describe()["local_as"] == 64512
    await story.cluster.stop()
