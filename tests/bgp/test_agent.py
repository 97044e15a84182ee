"""The agent between a datastore's batches and a speaker in memory: no time, no bytes."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from bgp import serving
from bgp.agent.agent import SpeakerBroken
from bgp.agent.saved_decisions import SavedDecisions
from bgp.speaker.interface import DownReason, PeerDown, SpeakerDown, SpeakerFailed, SpeakerUp
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.errors import InvalidValue
from libcalico.local.node_api import Borrowed, BorrowedEnd, Fact, RefusedPath
from libcalico.model.keys import AffinityKey, ResourceKey
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.support.patience import HANG, until

pytestmark = pytest.mark.asyncio


BASE = [
    node(1),
    node(2),
    affinity("n1", "10.65.1.0/26"),
    affinity("n2", "10.65.2.0/26"),
]


async def test_two_agents_learn_from_each_other() -> None:
    """Nothing happens before the snapshot is complete; then blocks travel, and go."""
    cluster = Cluster()
    n1, n2 = cluster.add("n1"), cluster.add("n2")
    await cluster.say(*BASE, in_sync=False)
    assert n1.plan.peers == ()
    assert not n1.gate.passed
    await cluster.say()
    assert cluster.table("n1") == {"10.65.2.0/26": ["10.0.0.2"]}
    assert cluster.table("n2") == {"10.65.1.0/26": ["10.0.0.1"]}
    assert n1.gate.passed
    assert n2.gate.passed
    described = n1.describe()
    assert described["router_id"] == "10.0.0.1"
    assert described["start_complete"] is True
    (peer,) = described["peers"]
    assert (peer["state"], peer["info"], peer["received"]) == ("up", "Established", 1)
    await cluster.say((AffinityKey("n2", ip_network("10.65.2.0/26")), None))
    assert cluster.table("n1") == {}
    await cluster.say((ResourceKey("Node", "n2"), None))
    assert n1.describe()["peers"] == []
    assert n1.describe()["speaker"] == "stopped"
    await cluster.stop()


async def test_a_restarted_peer_keeps_its_routes() -> None:
    """Closed without a word: stale, used, and swept by End-of-RIB."""
    cluster = Cluster()
    n1 = cluster.add("n1")
    cluster.add("n2")
    await cluster.say(*BASE)
    await cluster.speakers["n2"].close()
    await cluster.calm()
    assert cluster.table("n1") == {"10.65.2.0/26": ["10.0.0.2"]}
    (peer,) = n1.describe()["peers"]
    assert peer["graceful_restart"] == "keeping routes"
    assert (peer["state"], peer["stale"]) == ("start", 1)
    del cluster.agents["n2"]
    await cluster.say(node(3))
    fresh = cluster.add("n2")
    batch = [(key, value) for key, value in BASE if key != BASE[3][0]]
    await fresh.apply_batch(
        SyncBatch([Update(key, Entry(key, value, 1, b"")) for key, value in batch], True)
    )
    await cluster.calm()
    assert cluster.table("n1") == {}
    await cluster.stop()


async def test_own_speaker_crash_moves_no_route() -> None:
    cluster = Cluster()
    n1 = cluster.add("n1")
    cluster.add("n2")
    await cluster.say(*BASE)
    told: list[Any] = []
    n1.routing._publish = told.extend
    cluster.speakers["n1"].crash()
    await cluster.calm()
    assert told == []
    assert n1.describe()["peers"][0]["stale"] == 0
    await cluster.stop()


async def test_a_speaker_that_holds_no_session_is_stopped() -> None:
    """Its only peer is held down for a limit: that is the reason, and stays it."""
    cluster = Cluster()
    n1 = cluster.add("n1")
    cluster.add("n2")
    await cluster.say(*BASE)
    assert n1.describe()["speaker"] == "running"
    why = "more than 2 paths; held down for 60 s"
    n1.on_event(PeerDown(ip_address("10.0.0.2"), DownReason.LIMIT, why))
    n1.on_event(SpeakerDown(idle=True))
    told = n1.describe()
    assert (told["speaker"], told["peers"][0]["error"]) == ("stopped", why)
    n1.on_event(SpeakerUp())
    assert n1.describe()["speaker"] == "running"
    n1.on_event(SpeakerDown("exabgp ended", 1))
    assert n1.describe()["speaker"] == "restarting"
    await cluster.stop()


async def test_the_as_number_of_the_status_is_the_nodes() -> None:
    """One session may have another one (`localASNumber`)."""
    cluster = Cluster()
    n1 = cluster.add("n1")
    spec = {"peerIP": "10.0.0.3", "node": "n1", "asNumber": 64999, "localASNumber": 65001}
    await cluster.say(node(1), resource("BGPPeer", "p", spec))
    assert n1.describe()["local_as"] == 64512
    await cluster.stop()


async def test_gate_opens_at_the_deadline_and_without_peers() -> None:
    cluster = Cluster()
    slow = cluster.add("n1", start_deadline=3600.0)
    alone = cluster.add("n5")
    await cluster.say(node(1), node(2))
    assert alone.gate.passed  # it has no Node yet, so no peers
    assert not slow.gate.passed
    slow.gate._end = asyncio.get_running_loop().time() + 0.05
    slow._timer.set()
    await until(lambda: slow.gate.passed)
    await cluster.stop()


async def test_what_felix_says() -> None:
    cluster = Cluster()
    n1 = cluster.add("n1")
    cluster.add("n2")
    await cluster.say(*BASE)
    n1.on_felix(RefusedPath("10.65.2.0/26", "not inside a pool"))
    assert n1.describe()["felix_refused"] == {"10.65.2.0/26": "not inside a pool"}
    n1.on_felix(RefusedPath("10.65.2.0/26", ""))
    assert n1.describe()["felix_refused"] == {}, "it is in an enabled pool now, or gone"
    n1.on_felix(RefusedPath("10.65.2.0/26", "not inside a pool"))
    n1.on_felix_connected()
    assert n1.describe()["felix_refused"] == {}, "another felix has not said so"
    n1.on_felix(Fact(["10.0.0.2", "10.0.0.1"]))  # the next hop turns out to be ourselves
    assert cluster.table("n1") == {}
    n1.on_felix(Fact(["10.0.0.1"]))
    assert cluster.table("n1") == {"10.65.2.0/26": ["10.0.0.2"]}
    assert ip_address("10.0.0.1") in n1.routing.rib.own
    with pytest.raises(SpeakerBroken):
        n1.on_event(SpeakerFailed())
    await cluster.stop()


async def test_refused_peering_is_told() -> None:
    cluster = Cluster()
    n1 = cluster.add("n1")
    spec = {"peerIP": "10.9.9.9", "asNumber": 1, "filters": ["strict"]}
    await cluster.say(*BASE, resource("BGPPeer", "tor", spec))
    (refused,) = n1.describe()["refused"]
    assert refused["peer"] == "BGPPeer(tor)"
    assert "spec.filters" in refused["reason"]
    await cluster.stop()


async def test_what_cannot_be_read_is_a_condition() -> None:
    """It names the object and the field, and goes when the object is mended or deleted."""
    cluster = Cluster()
    n1 = cluster.add("n1")
    bad = resource("Node", "n2", {"bgp": {"ipv4Address": "fd00::2/64"}})
    await cluster.say(*BASE, bad)
    ((subject, why),) = n1.conditions()
    assert "n2" in subject
    assert "ipv4Address" in why
    assert {"object": subject, "reason": why} in n1.describe()["conditions"]
    await cluster.say(node(2))
    assert n1.conditions() == []
    await cluster.stop()


@pytest.mark.parametrize("text", ["2", "0", "x", "65536", "-9"])
async def test_bad_hold_time(text: str) -> None:
    with pytest.raises(InvalidValue, match="CALICO_BGP_HOLD_TIME"):
        serving.settings({"CALICO_BGP_HOLD_TIME": text})


async def test_settings_and_name(tmp_path: Path) -> None:
    assert serving.settings({}).hold_time == 90
    assert serving.settings({"CALICO_BGP_HOLD_TIME": "9"}).hold_time == 9
    assert await serving.node_name({"NODENAME": " n1 "}) == "n1"
    file = tmp_path / "nodename"
    waiting = asyncio.create_task(serving.node_name({}, file))
    await asyncio.sleep(0.05)
    file.write_text("n7\n")
    assert await asyncio.wait_for(waiting, HANG) == "n7"


@pytest.mark.parametrize("text", ["10.0.0.300", "fd00::1", "hush"])
async def test_a_wrong_router_id_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InvalidValue, match="CALICO_ROUTER_ID"):
        serving.settings({"CALICO_ROUTER_ID": text})


@pytest.mark.parametrize("text", ["0", "65536", "http"])
async def test_a_wrong_health_port_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InvalidValue, match="CALICO_BGP_HEALTH_PORT"):
        serving.health_port({"CALICO_BGP_HEALTH_PORT": text})
    assert serving.health_port({}) == 9097


BORROWED = Borrowed("10.65.2.0/26", {"10.65.2.7": "n1", "10.65.2.8": "n3"})


async def test_what_felix_says_is_borrowed_counts_until_a_felix_says_otherwise() -> None:
    cluster = Cluster()
    n1, _ = cluster.add("n1"), cluster.add("n2")
    await cluster.say(*BASE)
    n1.on_felix_connected()
    for message in (BORROWED, BorrowedEnd()):
        n1.on_felix(message)
    await cluster.calm()
    assert "10.65.2.7/32" not in cluster.table("n2"), "its felix has not said so"
    cluster.agents["n2"].on_felix(BORROWED)
    await cluster.calm()
    assert cluster.table("n2")["10.65.2.7/32"] == ["10.0.0.1"]
    n1.on_felix_connected()
    await cluster.calm()
    assert "10.65.2.7/32" in cluster.table("n2"), "a felix that starts anew withdraws nothing"
    n1.on_felix(Borrowed("10.65.9.0/26", {"10.65.9.1": "n1"}))
    n1.on_felix(BorrowedEnd())
    await cluster.calm()
    assert "10.65.2.7/32" not in cluster.table("n2")
    n1.on_felix(BORROWED)
    n1.on_felix(BorrowedEnd())
    await cluster.calm()
    assert "10.65.2.7/32" in cluster.table("n2"), "what came later counts besides"
    assert n1.view.mine.keys() == {ip_network("10.65.9.0/26"), ip_network("10.65.2.0/26")}
    await cluster.stop()


async def test_a_restart_keeps_what_was_borrowed(tmp_path: Path) -> None:
    cluster = Cluster()
    file = tmp_path / "last.json"
    n1 = cluster.add("n1", memory=SavedDecisions(file))
    await cluster.say(*BASE)
    n1.on_felix(BORROWED)
    await cluster.stop()
    again = Cluster()
    n1 = again.add("n1", memory=SavedDecisions(file))
    n2 = again.add("n2")
    n2.on_felix(BORROWED)
    await again.say(*BASE)
    assert again.table("n2")["10.65.2.7/32"] == ["10.0.0.1"], "before its felix is heard"
    await again.stop()
