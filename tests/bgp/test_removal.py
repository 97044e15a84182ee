"""Peers that are taken out of the configuration, and put back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from bgp.agent.agent import Agent
from bgp.agent.publish import Publisher
from bgp.peering.peering import Settings
from bgp.speaker.exabgp.failures import STAYS_DEAD
from bgp.speaker.interface import DownReason, PeerDown, PeerUp, SpeakerDown, SpeakerUp
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.model.keys import Key
from tests.bgp.make import resource
from tests.bgp.session_lab import BIRD, ME, RAW, Lab, RawPeer, peer, route, session, static, story
from tests.support.patience import until


def test_a_removed_peer_is_told_and_comes_back_at_once() -> None:
    """CEASE 6/3 (RFC 4486), established or not. Another peer notices nothing."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session(), static("10.50.0.0/24"))
        await lab.speaker.announce([route("10.65.1.0/26")])
        gone, opened = RawPeer(RAW[0]), RawPeer(RAW[1])
        stays = peer(BIRD, passive=True)
        both = [peer(gone.local, passive=True), peer(opened.local, passive=True)]
        await lab.speaker.configure([stays, *both])
        for number in range(1, 4):
            await opened.dial()
            await gone.dial()
            await gone.open()
            await until(lambda n=number: len(lab.heard.of(PeerUp, gone.local)) == n, "up")  # type: ignore[misc]
            await until(lambda: lab.heard.up(BIRD), "BIRD")
            await until(lambda: opened.messages, "our OPEN")
            await lab.speaker.configure([stays])
            await until(lambda: gone.notifications() == [(6, 3)], "told")
            await until(lambda: opened.notifications() == [(6, 3)], "told, too")
            await until(gone.closed.is_set, "closed")
            down = lab.heard.of(PeerDown, gone.local)[-1]
            assert isinstance(down, PeerDown)
            assert down.reason is DownReason.REMOVED
            await until(lambda: len(lab.speaker._applied) == 1, "taken out")
            await lab.speaker.configure([stays, *both])  # a moment later
            for each in (gone, opened):
                await each.close()
            await until(lambda: len(lab.speaker._applied) == 3, "taken back")
        # Taken out and put back in one breath: nobody notices.
        await gone.dial()
        await gone.open()
        await until(lambda: lab.heard.up(gone.local), "up")
        await lab.speaker.configure([stays])
        await lab.speaker.configure([stays, *both])
        await asyncio.sleep(0.5)
        assert gone.notifications() == []
        assert lab.heard.up(gone.local)
        assert lab.heard.of(PeerDown, BIRD) == []
        await gone.close()

    story(body)


def test_a_router_that_was_removed_is_back_within_seconds() -> None:
    """BIRD drops our routes at once, and takes the next session when it is offered."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session())
        await lab.speaker.announce([route("10.65.1.0/26")])
        mine, other = peer(BIRD, passive=True), peer(RAW[0], passive=True)

        def shown() -> str:
            return lab.birdc("show", "route")

        await lab.speaker.configure([mine, other])
        await until(lambda: "10.65.1.0/26" in shown(), "told")
        await lab.speaker.configure([other])
        await until(lambda: "10.65.1.0/26" not in shown(), "dropped")
        begun = time.monotonic()
        await lab.speaker.configure([mine, other])
        await until(lambda: "10.65.1.0/26" in shown(), "told again")
        print(f"back after {time.monotonic() - begun:.1f} s")

    story(body)


def test_a_speaker_that_is_not_needed_has_not_failed() -> None:
    """ExaBGP is ended with the last peer: so often as you like, that is no trouble."""

    async def body(lab: Lab) -> None:
        mine = peer(RAW[0], passive=True)
        for number in range(1, STAYS_DEAD + 2):
            await lab.speaker.configure([mine])
            await until(lambda n=number: len(lab.heard.of(SpeakerUp)) == n, "it runs")  # type: ignore[misc]
            assert lab.speaker.conditions() == []
            await lab.speaker.configure([])
            await until(lambda: not lab.speaker.running, "it is ended")
            await until(lambda n=number: len(lab.heard.of(SpeakerDown)) == n, "told")  # type: ignore[misc]
            assert lab.heard.of(SpeakerDown)[-1] == SpeakerDown("", 1, idle=True)
        await lab.speaker.configure([mine])
        # One that ends by itself, at once after that, is the first one.
        await until(lambda: lab.speaker.child_pid is not None, "it runs")
        child = lab.speaker.child_pid
        assert child is not None, "a kill of 0 would be one of the whole run"
        os.kill(child, signal.SIGKILL)
        await until(lambda: len(lab.heard.of(SpeakerUp)) == STAYS_DEAD + 3, "again")
        died = lab.heard.of(SpeakerDown)[-1]
        assert isinstance(died, SpeakerDown)
        assert not died.idle
        assert lab.speaker.conditions() == []
        assert lab.speaker._failures.count == 2

    story(body)


def test_a_router_that_is_deleted_and_made_again_in_one_breath_is_still_heard() -> None:
    """Its session stays, and so does what it brings: to the agent, not to the speaker alone."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session(asn=64500), static("10.50.0.0/24"))
        agent = Agent("n1", lab.speaker, Publisher(Path("/nonexistent/node.sock")), Settings())
        lab.reader.cancel()
        me = resource("Node", "n1", {"bgp": {"ipv4Address": f"{ME}/32"}})
        tor = resource("BGPPeer", "tor", {"peerIP": str(BIRD), "asNumber": 64500})
        other = resource("BGPPeer", "other", {"peerIP": str(RAW[0]), "asNumber": 64501})
        following = asyncio.create_task(agent.follow_speaker())

        def learned() -> set[str]:
            return {str(prefix) for prefix in agent.publisher.current}

        await agent.apply_batch(batch(me, tor))
        await until(lambda: learned() == {"10.50.0.0/24"}, "learned")
        await agent.apply_batch(batch(other))  # a reload that is due anyway
        await agent.apply_batch(batch((tor[0], None)))
        assert learned() == set()
        await agent.apply_batch(batch(tor))
        assert learned() == {"10.50.0.0/24"}
        lab.start_bird(session(asn=64500), static("10.50.0.0/24", "10.50.1.0/24"))
        await until(lambda: learned() == {"10.50.0.0/24", "10.50.1.0/24"}, "heard on")
        await until(lambda: len(lab.speaker._applied) == 2, "reloaded")
        assert agent.sessions.up(BIRD)
        assert agent.sessions.status[BIRD].session == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    story(body)


def batch(*changes: tuple[Key, Any]) -> SyncBatch:
    """What the datastore says; None: it is deleted."""
    updates = [Update(key, Entry(key, value, 1, b"") if value else None) for key, value in changes]
    return SyncBatch(updates, True)
