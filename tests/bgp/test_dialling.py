"""Dialling peers that refuse: seldom, at no cost, and soon when they are there."""

from __future__ import annotations

import asyncio
import time
from ipaddress import IPv4Address

from bgp.speaker.interface import PeerDown, SpeakerDown
from tests.bgp.session_lab import RAW, Lab, RawPeer, peer, story
from tests.bgp.test_sending import spent
from tests.support.patience import until

AWAY = 60


def refused(lab: Lab) -> int:
    """How many connections were refused in the namespace so far (`man 5 proc`, net/snmp)."""
    rows = [each.split() for each in lab.space.run("cat", "/proc/net/snmp").splitlines()]
    names, figures = (row for row in rows if row[0] == "Tcp:")
    return int(dict(zip(names, figures, strict=True))["AttemptFails"])


def test_peers_that_refuse_cost_nothing_and_are_dialled_soon_when_they_are_back() -> None:
    """60 that refuse; one begins to listen. And one that took a connection and closed it."""

    async def body(lab: Lab) -> None:
        away = [IPv4Address("10.9.1.0") + number for number in range(AWAY)]
        lines = "".join(f"address add {each}/32 dev lo\n" for each in away)
        lab.space.run("ip", "-batch", "-", input=lines)
        await lab.speaker.configure([peer(each) for each in (*away, RAW[0])])
        await until(lambda: refused(lab) >= AWAY, "all are dialled")
        passing = RawPeer(RAW[0])
        await passing.dial()
        await passing.close()
        await asyncio.sleep(2)
        begun = time.monotonic()
        before, tried = spent(lab), refused(lab)
        await asyncio.sleep(2)
        used, dialled_again = spent(lab) - before, refused(lab) - tried
        passed = time.monotonic() - begun
        assert used < 0.2 * passed
        assert dialled_again < 2.5 * passed * AWAY, "five a second at first, then fewer"
        dialled = asyncio.Event()
        server = await asyncio.start_server(lambda *_: dialled.set(), str(away[7]), 179)
        await until(dialled.is_set, "it is dialled")
        server.close()
        assert lab.heard.of(PeerDown) == []
        assert lab.heard.of(SpeakerDown) == []

    story(body)
