"""How sessions send: slow peers, peers that ask once more, peers that come and go, much at once."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from ipaddress import IPv4Address, ip_network
from pathlib import Path

import pytest

from bgp.speaker.attribute_values import Session
from bgp.speaker.interface import EndOfRib, Family, PathsReceived, PeerDown, Route
from bgp.speaker.wire import Decoder
from tests.bgp.session_lab import BIRD, HOLD, RAW, Lab, RawPeer, peer, route, session, story
from tests.support import bgp_wire as wire
from tests.support.patience import until

LONG = tuple(range(65001, 65901))


def table(raw: RawPeer) -> set[str]:
    """The prefixes that a raw peer was told of on this connection."""
    decoder = Decoder(raw.local, Session(internal=True))
    found: set[str] = set()
    for body in raw.updates():
        for event in decoder.decode(body).events:
            if isinstance(event, PathsReceived):
                found -= {str(each.prefix) for each in event.withdrawn}
                found |= {str(each.prefix) for each in event.announced}
    return found


def ended(raw: RawPeer) -> bool:
    """Whether it was told End-of-RIB."""
    decoder = Decoder(raw.local, Session(internal=True))
    told = (event for body in raw.updates() for event in decoder.decode(body).events)
    return any(isinstance(event, EndOfRib) for event in told)


def wide(count: int) -> list[Route]:
    """Routes that share no message: each has a long path of its own, 3.6 kB."""
    return [
        Route(ip_network(((10 << 24) + (number << 8), 24)), as_path=(number + 1, *LONG))
        for number in range(count)
    ]


async def pause(raw: RawPeer) -> None:
    """The peer reads nothing from now on."""
    assert raw._task is not None
    raw._task.cancel()
    await asyncio.gather(raw._task, return_exceptions=True)


def go_on(raw: RawPeer) -> None:
    """It reads again."""
    assert raw._socket is not None
    raw._task = asyncio.create_task(raw._listen(raw._socket))


def spent(lab: Lab) -> float:
    """ExaBGP's processor seconds."""
    fields = Path(f"/proc/{lab.speaker.child_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_peer_that_reads_slowly() -> None:
    """Others do not wait for it, ExaBGP does not spin, KEEPALIVEs stand between its messages.

    When it reads again it finds a whole stream, and in it the last word of every route.
    """

    async def body(lab: Lab) -> None:
        slow, quick = RawPeer(RAW[0]), RawPeer(RAW[1])
        await lab.speaker.configure(
            [
                peer(slow.local, passive=True, keepalive=1),
                peer(quick.local, passive=True),
            ]
        )
        for raw in (slow, quick):
            await raw.dial()
            await raw.open()
        await until(lambda: lab.heard.up(slow.local, quick.local) and ended(slow), "both")
        await pause(slow)
        many = wide(3_000)
        await lab.speaker.announce(many)
        await until(lambda: len(quick.updates()) >= len(many), "the other has all")
        begun = time.monotonic()
        before = spent(lab)
        await asyncio.sleep(2)
        assert spent(lab) - before < 0.5 * (time.monotonic() - begun)
        await lab.speaker.announce([*many[:100], route("10.250.0.0/16")])
        await until(lambda: "10.250.0.0/16" in table(quick), "the other knows")
        assert lab.heard.of(PeerDown) == []
        go_on(slow)
        await until(lambda: "10.250.0.0/16" in table(slow), "caught up")
        assert (
            table(slow)
            == table(quick)
            == {
                *(str(each.prefix) for each in many[:100]),
                "10.250.0.0/16",
            }
        )
        beats = [kind for kind, _ in slow.messages].index(wire.KEEPALIVE)
        assert beats < len(many), "a KEEPALIVE waits for a whole table"
        assert slow.notifications() == []
        for raw in (slow, quick):
            await raw.close()

    story(body, 150)


def test_a_peer_that_reads_nothing_at_all() -> None:
    """What waits for it has a limit: its session ends (CEASE 6/8), the next one begins anew."""

    async def body(lab: Lab) -> None:
        deaf = RawPeer(RAW[0])
        await lab.speaker.configure([peer(deaf.local, passive=True)])
        await deaf.dial()
        await deaf.open()
        await until(lambda: lab.heard.up(deaf.local) and ended(deaf), "up")
        await pause(deaf)
        many = wide(11_000)
        await lab.speaker.announce(many)
        await until(lambda: lab.heard.of(PeerDown, deaf.local), "its end")
        (down,) = lab.heard.of(PeerDown, deaf.local)
        assert isinstance(down, PeerDown)
        assert "(6,8)" in down.detail
        await deaf.close()
        await lab.speaker.announce(many[:10])
        await deaf.dial()
        await deaf.open()
        await until(lambda: len(table(deaf)) == 10 and ended(deaf), "ten")
        await deaf.close()

    story(body, 150)


def test_a_peer_asks_for_all_once_more() -> None:
    """RFC 2918: told again; asked for many times at once, twice at most. RFC 7313: framed."""

    async def body(lab: Lab) -> None:
        plain, modern = RawPeer(RAW[0]), RawPeer(RAW[1])
        await lab.speaker.announce([route("10.65.1.0/26"), route("10.65.2.0/26")])
        await lab.speaker.configure([peer(each.local, passive=True) for each in (plain, modern)])
        await plain.dial()
        await plain.open()
        can = wire.MULTIPROTOCOL4 + wire.capability(2) + wire.capability(70)
        can += wire.four_octet_as(modern.asn)
        await modern.dial()
        await modern.send(
            wire.OPEN, wire.open_body(modern.asn, modern.local.packed, hold=HOLD, capabilities=can)
        )
        await modern.send(wire.KEEPALIVE)
        await until(lambda: ended(plain) and ended(modern), "both")
        plain.messages.clear()
        modern.messages.clear()
        await plain.send_bytes(wire.message(5, b"\0\1\0\1") * 20)
        await until(lambda: len(plain.updates()) == 2, "twice")
        assert table(plain) == {"10.65.1.0/26", "10.65.2.0/26"}
        await modern.send(5, b"\0\1\0\1")
        await modern.send(5, b"\0\2\0\1")  # a family that was not agreed on
        await until(lambda: (5, b"\0\1\2\1") in modern.messages, "framed")
        kinds = [(kind, text) for kind, text in modern.messages if kind != wire.KEEPALIVE]
        assert kinds[0] == (5, b"\0\1\1\1")
        assert kinds[-1] == (5, b"\0\1\2\1")
        assert table(modern) == {"10.65.1.0/26", "10.65.2.0/26"}
        await asyncio.sleep(1.5)
        assert len(plain.updates()) == 2
        await plain.close()
        await modern.close()

    story(body)


def test_the_last_word_counts() -> None:
    """Routes that come, change and go faster than they are sent, and a peer that flaps meanwhile.

    What was meant for one session is not said to the next.
    """

    async def body(lab: Lab) -> None:
        steady, flapping = RawPeer(RAW[0]), RawPeer(RAW[1])
        await lab.speaker.configure([peer(each.local, passive=True) for each in (steady, flapping)])
        await steady.dial()
        await steady.open()
        await until(lambda: lab.heard.up(steady.local), "up")
        nets = [f"10.66.{number}.0/24" for number in range(200)]
        for turn in range(30):
            if turn % 5 == 0:
                await flapping.dial()
                await flapping.open()
            for step in range(10):
                some = [each for index, each in enumerate(nets) if (index * step + turn) % 3]
                await lab.speaker.announce([route(each, med=step) for each in some])
            if turn % 5 == 2:
                await flapping.close()
            await asyncio.sleep(0.02)
        await lab.speaker.announce([route(each) for each in nets[:7]])
        await flapping.dial()
        await flapping.open()
        await until(lambda: ended(flapping), "its end")
        assert table(flapping) == set(nets[:7])
        await until(lambda: table(steady) == set(nets[:7]), "the last word")
        assert steady.notifications() == []
        assert lab.heard.of(PeerDown, steady.local) == []
        assert lab.speaker.command_errors == 0
        await steady.close()
        await flapping.close()

    story(body)


def test_what_both_sides_carry() -> None:
    """A family that the peer does not know is not sent to it."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session())
        await lab.speaker.announce([route("10.65.1.0/26"), route("fd65::/64")])
        both = replace(peer(BIRD), families=(Family.IPV4, Family.IPV6))
        await lab.speaker.configure([both])
        await until(lambda: "10.65.1.0/26" in lab.birdc("show", "route"), "its route")
        assert lab.speaker.sent(BIRD) == 1
        assert lab.speaker.conditions() == []

    story(body)


def test_what_cannot_be_told_is_a_condition() -> None:
    """It names peer, route and reason, and goes when the route is mended; the others arrive."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session())
        good, net = route("10.65.2.0/26"), "10.65.1.0/26"
        raw = RawPeer(RAW[0])
        over4 = replace(peer(raw.local), families=(Family.IPV4, Family.IPV6), passive=True)
        six = route("fd65::/64", peers=frozenset({raw.local}))
        await lab.speaker.announce([good, route(net, communities=("70000:1",)), six])
        await lab.speaker.configure([peer(BIRD), over4])
        await until(lambda: lab.heard.up(BIRD), "BIRD")
        ((subject, why),) = lab.speaker.conditions()
        assert subject == f"BGP peer {BIRD}"
        assert net in why
        assert "70000:1" in why
        await until(lambda: "10.65.2.0/26" in lab.birdc("show", "route"), "the good one")
        await lab.speaker.announce([good, route(net, communities=("7000:1",)), six])
        assert lab.speaker.conditions() == []
        await until(lambda: net in lab.birdc("show", "route"), "told")
        await raw.dial()
        await raw.open()
        await until(lambda: ended(raw), "all")
        ((subject, why),) = lab.speaker.conditions()
        assert subject == f"BGP peer {raw.local}"
        assert "no IPv6 address of ours" in why
        assert table(raw) == {net, "10.65.2.0/26"}
        assert lab.speaker.sent(raw.local) == 2
        await raw.close()
        await until(lambda: lab.heard.of(PeerDown, raw.local), "down")
        assert lab.speaker.conditions() == []

    story(body)


@pytest.mark.alone
def test_sessions_that_say_nothing_cost_nothing() -> None:
    """A hundred of them, which ExaBGP would look at a hundred times a second; all hear a route."""

    async def body(lab: Lab) -> None:
        raws = [RawPeer(IPv4Address("10.9.1.0") + number) for number in range(100)]
        for raw in raws:
            lab.space.run("ip", "addr", "add", f"{raw.local}/32", "dev", "lo")
        await lab.speaker.configure([peer(raw.local, passive=True) for raw in raws])
        for raw in raws:
            await raw.dial()
            await raw.open()
        await until(lambda: all(map(ended, raws)), "all")
        begun = time.monotonic()
        before = spent(lab)
        await asyncio.sleep(3)
        share = (spent(lab) - before) / (time.monotonic() - begun)
        assert share < 0.1, share
        await lab.speaker.announce([route("10.65.1.0/26")])
        await until(lambda: all("10.65.1.0/26" in table(raw) for raw in raws), "told")
        assert lab.heard.of(PeerDown) == []
        for raw in raws:
            await raw.close()

    story(body)
