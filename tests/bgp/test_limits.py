"""What is held in bounds: paths of a peer, a speaker that dies again and again, a flapping peer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bgp import serving
from bgp.speaker.exabgp import protocol
from bgp.speaker.exabgp.session import Penalties, Session
from bgp.speaker.exabgp.speaker import ExaBGPSpeaker
from bgp.speaker.interface import DownReason, Event, PeerDown, PeerUp, SpeakerDown
from libcalico.errors import InvalidValue
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, route, session, static, story
from tests.support import bgp_wire as wire
from tests.support.patience import until

GOOD = wire.ORIGIN + wire.AS_PATH + wire.NEXT_HOP


def test_too_many_paths() -> None:
    """CEASE 6/1 (RFC 4486), a condition that names peer and limit, and no other session harmed.

    A higher limit lets it back at once.
    """

    async def body(lab: Lab) -> None:
        lab.start_bird(session(), static("10.50.0.0/24"))
        mine, raw = peer(BIRD, passive=True), RawPeer(RAW[0])
        limited = peer(raw.local, passive=True, max_prefixes=100)
        await lab.speaker.configure([mine, limited])
        await raw.dial()
        await raw.open()
        await until(lambda: lab.heard.up(BIRD, raw.local), "both")
        for round_ in range(3):  # the same 100, again and again, are 100
            nets = b"".join(wire.nlri(f"10.66.{number}.0/24") for number in range(100))
            await raw.update(attributes=GOOD, reachable=nets)
            await until(lambda: len(lab.heard.prefixes(raw.local)) == 100, f"{round_}")
        await raw.update(attributes=GOOD, reachable=wire.nlri("10.67.0.0/24"))
        await until(lambda: raw.notifications() == [(6, 1)], "its end")
        await until(lambda: lab.heard.of(PeerDown, raw.local), "down")
        (down,) = lab.heard.of(PeerDown, raw.local)
        assert isinstance(down, PeerDown)
        assert (down.reason, down.detail) == (
            DownReason.LIMIT,
            "more than 100 paths; held down for 60 s",
        )
        ((what, why),) = lab.speaker.conditions()
        assert what == f"BGP peer {raw.local}"
        assert "more than 100 paths" in why
        await raw.close()
        await until(lambda: set(lab.speaker._applied) == {BIRD}, "out of the configuration")
        await raw.dial()
        await raw.open()
        await until(lambda: raw.notifications() == [(6, 3)], "refused")
        await raw.close()
        await lab.speaker.configure([mine, replace(limited, max_prefixes=200)])
        await until(lambda: len(lab.speaker._applied) == 2, "in again")
        await raw.dial()
        await raw.open()
        await until(lambda: len(lab.heard.of(PeerUp, raw.local)) == 2, "up again")
        assert lab.speaker.conditions() == []
        # The limit of a session that is up is raised without its noticing.
        await lab.speaker.configure([mine, replace(limited, max_prefixes=300)])
        await until(lambda: lab.speaker._applied[raw.local].max_prefixes == 300, "raised")
        assert lab.heard.of(PeerDown, BIRD) == []
        assert lab.heard.up(BIRD, raw.local)
        await raw.close()

    story(body)


def test_a_second_session_before_exabgp_is_told_is_no_second_table(tmp_path: Path) -> None:
    """ExaBGP dials again within a second: what comes of it is ended, and its paths not read."""

    async def body() -> None:
        speaker, mine = ExaBGPSpeaker(tmp_path), peer(RAW[0])
        speaker._wanted = {mine.address: mine}
        speaker._sessions = {mine.address: Session(mine)}
        speaker._penalties.punish(mine, asyncio.get_running_loop().time())
        told = protocol.Up(mine.address, 7, frozenset(mine.families), True, None, None)
        speaker._on_up(told)
        speaker._on_state(protocol.State(mine.address, "down", "notification sent (6,5)"))
        assert speaker._commands.next_line() == "end 6005 7"
        assert speaker._events.empty()
        speaker._wanted = {mine.address: replace(mine, max_prefixes=0)}
        speaker._on_up(told)
        assert isinstance(speaker._events.get_nowait(), PeerUp)

    asyncio.run(body())


def test_the_limit_can_be_chosen() -> None:
    """CALICO_BGP_MAX_PREFIXES; 0 is no limit."""
    assert serving.settings({}).max_prefixes == 200_000
    assert serving.settings({"CALICO_BGP_MAX_PREFIXES": "0"}).max_prefixes == 0
    for wrong in ("-1", "many", "4294967296"):
        with pytest.raises(InvalidValue, match="CALICO_BGP_MAX_PREFIXES"):
            serving.settings({"CALICO_BGP_MAX_PREFIXES": wrong})


def test_pauses_grow() -> None:
    """A peer that passes its limit each time stays out longer each time, up to 15 minutes."""
    penalties, one = Penalties(), peer(BIRD)
    now = 100_000.0
    pauses = []
    for _ in range(6):
        pauses.append(penalties.punish(one, now))
        assert penalties.without({BIRD: one}, now + pauses[-1] - 1) == {}
        now += pauses[-1]
        assert penalties.without({BIRD: one}, now) == {BIRD: one}
    assert pauses == [60, 120, 300, 900, 900, 900]
    assert penalties.punish(one, now + 10_000) == 60
    assert penalties.without({BIRD: peer(BIRD, hold_time=30)}, now)


@pytest.mark.promise("F-43")
def test_a_speaker_that_stays_dead_is_a_condition() -> None:
    """Another daemon holds the port: said after three tries; over when the port is free."""

    async def body(lab: Lab) -> None:
        server = await asyncio.start_server(lambda *_: None, "10.9.0.1", 179)
        await lab.speaker.configure([peer(BIRD)])
        await until(lambda: lab.speaker.conditions(), "three tries")
        ((what, why),) = lab.speaker.conditions()
        assert what == "BGP speaker"
        assert "port may already be in use" in why
        downs = [each for each in lab.heard.events if isinstance(each, SpeakerDown)]
        assert [each.attempts for each in downs] == list(range(1, len(downs) + 1))
        server.close()
        await server.wait_closed()
        await until(lambda: lab.speaker.running, "started")

    story(body)


def test_a_flapping_peer_leaves_nothing_behind() -> None:
    """A session that comes, brings routes and goes: no growth of memory, descriptors or tasks.

    Full size: once a second for five minutes.
    """
    full = bool(os.environ.get("MUSLIN_FULL_SIZE"))
    rounds, pause = (300, 1.0) if full else (12, 0.0)

    async def body(lab: Lab) -> None:
        lab.start_bird(session(), static("10.50.0.0/24"))
        await lab.speaker.announce([route(f"10.65.{number}.0/26") for number in range(64)])
        await lab.speaker.configure([peer(BIRD, passive=True), peer(RAW[0], passive=True)])
        await until(lambda: lab.heard.up(BIRD), "BIRD")
        nets = b"".join(wire.nlri(f"10.66.{number}.0/24") for number in range(200))
        raw = RawPeer(RAW[0])
        marks: list[Footprint] = []
        for number in range(1, rounds + 1):
            started = asyncio.get_running_loop().time()
            await raw.dial()
            await raw.open()
            await until(counts(lab, PeerUp, number), "up")
            await raw.update(attributes=GOOD, reachable=nets)
            await until(lambda: len(lab.heard.prefixes(RAW[0])) == 200, "routes")
            await raw.close()
            await until(counts(lab, PeerDown, number), "down")
            if number >= rounds // 4:
                # What ended is let go of a moment later.
                await until(lambda: fits(marks, footprint(lab.speaker.child_pid)), "no more of it")
                marks.append(footprint(lab.speaker.child_pid))
            lab.heard.events[:] = [
                event for event in lab.heard.events if isinstance(event, (PeerUp, PeerDown))
            ]
            spare = pause - (asyncio.get_running_loop().time() - started)
            await asyncio.sleep(max(0.0, spare))
        first, last = marks[0], marks[-1]
        assert last[2] <= first[2] * 1.05 + 512, f"ExaBGP's memory, KiB: {marks}"
        assert lab.heard.of(PeerDown, BIRD) == []

    story(body, 600)


def counts(lab: Lab, kind: type[Event], number: int) -> Callable[[], bool]:
    """Whether the raw peer's events of a kind are so many."""
    return lambda: len(lab.heard.of(kind, RAW[0])) == number


Footprint = tuple[int, int, int]


def fits(marks: list[Footprint], now: Footprint) -> bool:
    """Whether there are no more descriptors and tasks than at first."""
    return not marks or (now[0] <= marks[0][0] + 1 and now[1] <= marks[0][1] + 1)


def footprint(pid: int | None) -> Footprint:
    """Descriptors of us and of ExaBGP, our tasks, and ExaBGP's memory in KiB."""
    descriptors = len(os.listdir("/proc/self/fd")) + len(os.listdir(f"/proc/{pid}/fd"))
    status = Path(f"/proc/{pid}/status").read_text()
    memory = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return descriptors, len(asyncio.all_tasks()), int(memory.split()[1])
