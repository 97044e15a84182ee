"""A hostile peer beside a live one: RFC 7606 on real sessions.

The raw peer says every malformed thing of `test_wire.py`, and more that is no UPDATE. What it
did is told to it and to us; the session with BIRD, ExaBGP's process and the agent's table of
BIRD's routes stay as they were.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from bgp.speaker.interface import DownReason, Event, Family, PeerDown, PeerUp, SpeakerDown
from tests.bgp.session_lab import BIRD, HOLD, ME, RAW, Lab, RawPeer, peer, session, static, story
from tests.bgp.test_wire import DISCARDED, GOOD, NET, RESETS, WITHDRAWING
from tests.support import bgp_wire as wire
from tests.support.patience import until

HOSTILE = RAW[0]
OTHER = "10.66.0.0/24"


async def settle(lab: Lab) -> RawPeer:
    lab.start_bird(session(), static("10.50.0.0/24"))
    hostile = peer(HOSTILE, passive=True, families=tuple(Family))
    await lab.speaker.configure([peer(BIRD, passive=True), hostile])
    raw = RawPeer(HOSTILE)
    await raw.dial()
    await raw.open()
    await until(lambda: lab.heard.up(BIRD, HOSTILE), "both sessions")
    await until(lambda: lab.heard.prefixes(BIRD) == {"10.50.0.0/24"}, "BIRD's route")
    return raw


def untouched(lab: Lab, pid: int | None) -> None:
    """What must hold whatever the hostile peer did."""
    assert lab.heard.up(BIRD)
    assert lab.heard.of(PeerDown, BIRD) == []
    assert lab.heard.of(SpeakerDown) == []
    assert lab.heard.prefixes(BIRD) == {"10.50.0.0/24"}
    assert lab.speaker.child_pid == pid


def test_wrong_attributes_cost_their_paths_alone() -> None:
    """Treat-as-withdraw and attribute discard: one session takes all of them and stays up."""

    async def body(lab: Lab) -> None:
        raw = await settle(lab)
        pid = lab.speaker.child_pid
        for name, attributes in WITHDRAWING.items():
            await raw.update(attributes=GOOD, reachable=wire.nlri(NET) + wire.nlri(OTHER))
            await until(lambda: lab.heard.prefixes(HOSTILE) == {str(NET), OTHER}, "offered")
            await raw.update(attributes=attributes, reachable=wire.nlri(NET))
            await until(lambda: lab.heard.prefixes(HOSTILE) == {OTHER}, name)
        for name, attributes in DISCARDED.items():
            await raw.update(attributes=GOOD + attributes, reachable=wire.nlri(NET))
            await until(lambda: lab.heard.prefixes(HOSTILE) == {str(NET), OTHER}, name)
            await raw.update(withdrawn=wire.nlri(NET))
            await until(lambda: lab.heard.prefixes(HOSTILE) == {OTHER}, name)
        assert raw.notifications() == []
        assert lab.heard.of(PeerDown, HOSTILE) == []
        untouched(lab, pid)
        await raw.close()

    story(body)


def counts(lab: Lab, kind: type[Event], number: int) -> Callable[[], bool]:
    """Whether the hostile peer's events of a kind are so many."""
    return lambda: len(lab.heard.of(kind, HOSTILE)) == number


NOT_UPDATES = {
    "no marker": ((1, 1), b"\0" * 19),
    "length 18": ((1, 2), wire.MARKER + b"\0\x12\2"),
    "length 65535": ((1, 2), wire.MARKER + b"\xff\xff\2" + bytes(100)),
    "type 99": ((1, 3), wire.message(99)),
    "KEEPALIVE with a body": ((1, 2), wire.message(wire.KEEPALIVE, b"x")),
}


def test_what_cannot_be_read_ends_the_session_with_its_reason() -> None:
    """Session reset: the NOTIFICATION names the error, under graceful restart too; then again."""

    async def body(lab: Lab) -> None:
        raw = await settle(lab)
        pid = lab.speaker.child_pid
        cases = {
            name: ((code, sub), wire.message(2, raw)) for name, (code, sub, raw) in RESETS.items()
        }
        cases |= NOT_UPDATES
        cases["too short"] = (1, 2), cases["too short"][1]  # RFC 4271 6.1: the header's length
        for number, (name, (notice, data)) in enumerate(cases.items(), 1):
            await raw.update(attributes=GOOD, reachable=wire.nlri(NET))
            await until(lambda: lab.heard.prefixes(HOSTILE) == {str(NET)}, "offered")
            await raw.send_bytes(data)
            await until(counts(lab, PeerDown, number), f"{name}: down")
            await until(raw.notifications, f"{name}: told")
            assert raw.notifications() == [notice], name
            down = lab.heard.of(PeerDown, HOSTILE)[-1]
            assert isinstance(down, PeerDown)
            assert down.reason is DownReason.NOTIFICATION_SENT, name
            await raw.close()
            await raw.dial()
            await raw.open()
            await until(counts(lab, PeerUp, number + 1), "up again")
        untouched(lab, pid)
        await raw.close()

    story(body, 120)


@pytest.mark.promise("ADV-5")
def test_stalled_handshakes_block_nobody() -> None:
    """Connections that say nothing, half an OPEN, or an OPEN and no more: others come up.

    Neither do they cost a processor: ExaBGP by itself spins while it waits for a KEEPALIVE.
    """

    async def body(lab: Lab) -> None:
        mute, half, opened, late = (RawPeer(each) for each in RAW)
        first = [peer(each, passive=True) for each in RAW]
        await lab.speaker.configure(first)
        for each in (mute, half, opened):
            await each.dial()
        await half.send_bytes(wire.message(wire.OPEN, bytes(10))[:25])
        can = wire.four_octet_as(64512)
        await opened.send(
            wire.OPEN, wire.open_body(64512, opened.local.packed, hold=HOLD, capabilities=can)
        )
        await until(lambda: len(opened.messages) >= 2, "its OPEN is answered")
        strangers = [RawPeer(BIRD) for _ in range(20)]
        for stranger in strangers:
            await stranger.dial()
        await late.dial()
        await late.open()
        await until(lambda: lab.heard.up(late.local), "the healthy peer")
        await until(lambda: all(s.notifications() for s in strangers), "strangers are refused")
        assert {notice for s in strangers for notice in s.notifications()} == {(6, 3)}
        begun, before = time.monotonic(), processor_seconds(lab.speaker.child_pid)
        await asyncio.sleep(2)
        used = processor_seconds(lab.speaker.child_pid) - before
        passed = time.monotonic() - begun
        assert used < 0.4 * passed, f"{used} s of processor time in {passed} s"
        assert not lab.heard.up(mute.local)
        # The peer whose first connection stalled comes up by a second one.
        again = RawPeer(mute.local)
        await again.dial()
        await again.open()
        await until(lambda: lab.heard.up(mute.local), "the stalled peer's second try")
        for each in (mute, half, opened, late, again, *strangers):
            await each.close()

    story(body)


def processor_seconds(pid: int | None) -> float:
    """User and system time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.promise("F-43")
def test_a_peer_that_lost_its_old_session_gets_a_new_one_at_once() -> None:
    """RFC 4724 4.2: it dials anew while we believe the old session alive.

    A connection without an OPEN changes nothing: it may merely have crossed ours.
    """

    async def body(lab: Lab) -> None:
        raw = await settle(lab)
        await raw.update(attributes=GOOD, reachable=wire.nlri(NET))
        idle = RawPeer(HOSTILE)
        await idle.dial()
        await asyncio.sleep(0.5)
        assert lab.heard.of(PeerDown, HOSTILE) == []
        fresh = RawPeer(HOSTILE)
        await fresh.dial()
        await fresh.open()
        await until(lambda: len(lab.heard.of(PeerUp, HOSTILE)) == 2, "the new session")
        (down,) = lab.heard.of(PeerDown, HOSTILE)
        assert isinstance(down, PeerDown)
        assert down.reason is DownReason.CLOSED
        for each in (raw, idle, fresh):
            await each.close()
        assert lab.heard.up(BIRD)

    story(body)


def test_an_old_peer_without_wide_numbers() -> None:
    """RFC 6793: it sees AS_TRANS for ours, and AS4_PATH beside it."""

    async def body(lab: Lab) -> None:
        from ipaddress import ip_network

        from bgp.speaker.interface import Route

        ours = 4200000001
        await lab.speaker.announce([Route(ip_network("10.65.9.0/26"))])
        await lab.speaker.configure([peer(HOSTILE, local_as=ours, remote_as=65001, passive=True)])
        raw = RawPeer(HOSTILE, asn=65001)
        await raw.dial()
        await raw.open(wide=False)
        await until(lambda: lab.heard.up(HOSTILE), "up")
        await until(raw.updates, "our route")
        assert any(b"\x02\x01\x5b\xa0" in body for body in raw.updates())  # AS_TRANS
        assert any(ours.to_bytes(4, "big") in body for body in raw.updates())
        path = wire.attribute(0x40, 2, b"\x02\x01\xfd\xe9")
        await raw.update(attributes=wire.ORIGIN + path + wire.NEXT_HOP, reachable=wire.nlri(NET))
        await until(lambda: lab.heard.prefixes(HOSTILE) == {str(NET)}, "its route")
        (event,) = lab.heard.table(HOSTILE).values()
        assert event.attributes.as_path == (65001,)
        await raw.close()

    assert ME.version == 4
    story(body)
