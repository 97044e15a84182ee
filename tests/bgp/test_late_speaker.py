"""A speaker fulfils a wish later, and not at all what was taken back before: a reload takes time.

The agent goes by what its sessions are (SPK-6), not by what it wished last.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address
from typing import Any

import pytest

from bgp.agent.agent import Agent
from bgp.speaker.interface import DownReason, Peer, PeerDown, PeerUp
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.bgp.memory_speaker import MemorySpeaker

pytestmark = pytest.mark.asyncio

N2 = IPv4Address("10.0.0.2")
PLAIN = {"peerIP": str(N2), "node": "n1", "asNumber": 64512}
STRICT = resource(
    "BGPFilter",
    "strict",
    {"importV4": [{"action": "Reject", "cidr": "10.65.0.0/16", "matchOperator": "In"}]},
)
LEARNED = {"10.65.2.0/26": ["10.0.0.2"], "10.65.3.0/26": ["10.0.0.2"]}


class LateSpeaker(MemorySpeaker):
    """Fulfils the last wish when it is told to."""

    wish: Collection[Peer] = ()

    async def configure(self, peers: Collection[Peer]) -> None:
        self.wish = peers

    async def fulfil(self) -> None:
        await super().configure(self.wish)


class Story:
    """Two nodes, n1 with a late speaker; a BGPPeer that n1 has with n2, whose session is up."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    async def begin(self) -> Agent:
        agent = self.cluster.add("n1", LateSpeaker)
        self.cluster.add("n2")
        back = {"peerIP": "10.0.0.1", "node": "n2", "asNumber": 64512}
        mesh = resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
        await self.cluster.say(node(1), node(2), mesh, STRICT, resource("BGPPeer", "back", back))
        await self.peer(PLAIN)
        await self.fulfil()
        await self.cluster.say(affinity("n2", "10.65.2.0/26"), affinity("n2", "10.65.3.0/26"))
        assert self.table == LEARNED
        return agent

    async def peer(self, spec: dict[str, Any] | None) -> None:
        """The BGPPeer is this now; None: it is deleted."""
        key, value = resource("BGPPeer", "peer", spec or PLAIN)
        await self.cluster.say((key, value if spec else None))

    async def fulfil(self) -> None:
        speaker = self.cluster.speakers["n1"]
        assert isinstance(speaker, LateSpeaker)
        await speaker.fulfil()
        await self.cluster.calm()

    @property
    def table(self) -> dict[str, list[str]]:
        return self.cluster.table("n1")


async def test_a_peer_that_is_deleted_and_made_again_keeps_its_session() -> None:
    """Its paths are out of use in between, and no longer."""
    story = Story()
    agent = await story.begin()
    before = agent.describe()["peers"]
    await story.peer(None)
    assert story.table == {}
    assert agent.describe()["peers"] == []
    await story.cluster.say(affinity("n2", "10.65.4.0/26"))
    assert story.table == {}
    await story.peer(PLAIN)
    more = LEARNED | {"10.65.4.0/26": ["10.0.0.2"]}
    assert story.table == more
    await story.fulfil()
    assert story.table == more
    (peer,) = agent.describe()["peers"]
    assert (peer["state"], peer["session"]) == ("up", before[0]["session"])
    assert agent.sessions.complete(N2)
    await story.cluster.stop()


async def test_a_peer_that_is_deleted_ends_with_its_session() -> None:
    story = Story()
    agent = await story.begin()
    await story.peer(None)
    await story.fulfil()
    assert agent.routing.rib.of(N2) == set()
    assert N2 not in agent.sessions.status
    await story.peer(PLAIN)
    assert agent.describe()["peers"][0]["state"] == "start"
    await story.fulfil()
    assert story.table == LEARNED
    await story.cluster.stop()


async def test_a_peer_that_is_made_again_too_late_begins_anew() -> None:
    """The end of its old session is heard when it is wished again."""
    story = Story()
    agent = await story.begin()
    await story.peer(None)
    await story.peer(PLAIN)
    agent.on_event(PeerDown(N2, DownReason.REMOVED))
    assert story.table == {}
    assert agent.describe()["peers"][0]["state"] == "start"
    await story.cluster.stop()


async def test_a_session_that_comes_up_while_nobody_wishes_it() -> None:
    story = Story()
    agent = await story.begin()
    definition = agent.plan.peers[0].peer
    await story.cluster.speakers["n2"].close()
    await story.cluster.calm()
    await story.peer(None)
    assert N2 not in agent.sessions.status
    agent.on_event(PeerUp(N2, definition))
    await story.peer(PLAIN)
    assert agent.describe()["peers"][0]["state"] == "up"
    await story.peer(None)
    agent.on_event(PeerDown(N2, DownReason.CLOSED))
    assert N2 not in agent.sessions.status
    agent.on_event(PeerUp(N2, definition))
    story.cluster.speakers["n1"].crash()
    await story.cluster.calm()
    assert N2 not in agent.sessions.status
    await story.cluster.stop()


async def test_filters_apply_though_the_change_they_came_with_is_taken_back() -> None:
    story = Story()
    await story.begin()
    await story.peer({**PLAIN, "filters": ["strict"], "keepaliveTime": "7s"})
    assert story.table == {}
    await story.peer({**PLAIN, "filters": ["strict"]})
    await story.fulfil()
    assert story.table == {}
    await story.peer(PLAIN)
    assert story.table == LEARNED
    await story.cluster.stop()
