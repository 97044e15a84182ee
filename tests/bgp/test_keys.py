"""Whoever is quicker than a key: a connection from before it must never become a session.

The speaker is held at the moment in question: between listening and what it does next, or as a
whole (SIGSTOP), while the kernel goes on and completes connections for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from bgp.speaker.exabgp import child_command
from bgp.speaker.interface import IPAddress, Peer, PeerDown
from tests.bgp.session_lab import RAW, Lab, RawPeer, peer, story
from tests.support import bgp_wire as wire
from tests.support import stopping
from tests.support.patience import HANG, until

pytestmark = pytest.mark.promise("F-41")

KEY, OTHER_KEY = b"our-key", b"another"
OPEN_PEER, SECRET_PEER = RAW[0], RAW[1]

HOLD_AFTER_LISTEN = f"""
import os, runpy, socket, sys, time

def hold(opened, *arguments, listen=socket.socket.listen):
    listen(opened, *arguments)
    end = time.monotonic() + {HANG}
    while opened.family != socket.AF_UNIX and not os.path.exists(GO):
        assert time.monotonic() < end
        time.sleep(0.01)

socket.socket.listen = hold
runpy.run_path(LAUNCH, run_name="__main__")
"""


def keyed(key: bytes = KEY) -> Peer:
    return peer(SECRET_PEER, password=key.decode(), passive=True)


UNKEYED = peer(SECRET_PEER, passive=True)
OTHER = peer(OPEN_PEER, passive=True)


def drops(lab: Lab) -> int:
    """Segments that the kernel dropped for their key, or for having none (`man 5 proc`)."""
    rows = [each.split() for each in lab.space.run("cat", "/proc/net/netstat").splitlines()]
    names, figures = (row for row in rows if row[0] == "TcpExt:")
    found = dict(zip(names, figures, strict=True))
    return sum(int(figure) for name, figure in found.items() if name.startswith("TCPMD5"))


async def not_let_in(lab: Lab, one: RawPeer, *, port: int = 179, key: bytes = b"") -> None:
    """The kernel drops what it says before there is a connection."""
    before = drops(lab)
    dialling = asyncio.create_task(one.dial(port=port, key=key))
    try:
        await until(lambda: dialling.done() or drops(lab) > before, "an answer to its SYN")
        assert not dialling.done(), "it was let in"
    finally:
        dialling.cancel()
        await asyncio.gather(dialling, return_exceptions=True)
        await one.close()


async def comes_up(lab: Lab, one: RawPeer, key: bytes = b"") -> None:
    await one.dial(key=key)
    await one.open()
    await until(lambda: lab.heard.up(one.local), "up")


@asynccontextmanager
async def stopped_until_defined_anew(lab: Lab, *peers: Peer) -> AsyncIterator[None]:
    """The speaker stands still while the body runs, and finds new peers when it goes on."""
    pid = lab.speaker.child_pid
    assert pid is not None
    stopping.pause(pid)
    try:
        yield
        await lab.speaker.configure(peers)
        await until(lambda: pending(pid, signal.SIGUSR1), "it is told to reload")
    finally:
        os.kill(pid, signal.SIGCONT)
    wanted = {each.address: each for each in peers}
    await until(lambda: lab.speaker._applied == wanted, "loaded")
    assert lab.speaker.child_pid == pid


def pending(pid: int, number: int) -> bool:
    """Whether a signal waits for the process (`man 5 proc`, ShdPnd)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("ShdPnd:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("plain", "secret"),
    [(OPEN_PEER, SECRET_PEER), (IPv6Address("fd09::3"), IPv6Address("fd09::4"))],
    ids=["IPv4", "IPv6"],
)
def test_at_start_keys_are_there_before_anybody_is_heard(
    plain: IPAddress, secret: IPAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two peers on one socket the one with a password comes last."""

    async def body(lab: Lab) -> None:
        go, launch = lab.directory / "go", lab.directory / "launch.py"
        names = f"GO, LAUNCH = {str(go)!r}, {str(child_command.LAUNCH)!r}\n"
        launch.write_text(names + HOLD_AFTER_LISTEN)
        launch.chmod(0o644)
        monkeypatch.setattr(child_command, "LAUNCH", launch)
        mine = [peer(plain, passive=True), peer(secret, passive=True, password=KEY.decode())]
        await lab.speaker.configure(mine)
        await until(lambda: ":179 " in lab.space.run("ss", "-Hltn"), "it listens")
        quick, other = RawPeer(secret), RawPeer(plain)
        await not_let_in(lab, quick)
        go.touch()
        await comes_up(lab, quick, KEY)
        await comes_up(lab, other)
        await quick.close()
        await other.close()

    story(body)


@pytest.mark.parametrize(
    ("before", "used", "after", "wanted"),
    [
        ([], b"", keyed(), KEY),
        ([UNKEYED], b"", keyed(), KEY),
        ([keyed(OTHER_KEY)], OTHER_KEY, keyed(), KEY),
        ([keyed()], KEY, UNKEYED, b""),
    ],
    ids=["a new peer", "a first key", "another key", "no key any more"],
)
def test_on_a_reload_what_came_under_other_keys_is_closed(
    before: list[Peer], used: bytes, after: Peer, wanted: bytes
) -> None:
    """It stood in the queue of the socket, handshake done and OPEN sent, when the key changed."""

    async def body(lab: Lab) -> None:
        other, quick = RawPeer(OPEN_PEER), RawPeer(SECRET_PEER)
        await lab.speaker.configure([OTHER, *before])
        await comes_up(lab, other)
        async with stopped_until_defined_anew(lab, OTHER, after):
            await quick.dial(key=used)
            await quick.open()
        await until(quick.closed.is_set, "it is closed")
        assert not lab.heard.up(SECRET_PEER)
        # It may have been accepted in the last turn before the signal was seen: it got no answer
        # to its OPEN then.
        assert {kind for kind, _ in quick.messages} <= {wire.OPEN}
        await quick.close()
        if wanted:
            await not_let_in(lab, quick)
        await comes_up(lab, quick, wanted)
        assert lab.heard.of(PeerDown, OPEN_PEER) == []
        await quick.close()
        await other.close()

    story(body)


def test_what_waits_to_replace_a_session_keeps_no_old_key() -> None:
    """A second connection of an Established peer waits for its OPEN; then the key changes."""

    async def body(lab: Lab) -> None:
        first, second = RawPeer(SECRET_PEER), RawPeer(SECRET_PEER)
        await lab.speaker.configure([keyed(OTHER_KEY)])
        await comes_up(lab, first, OTHER_KEY)
        await second.dial(key=OTHER_KEY)
        await until(lambda: queued(lab) == 0, "taken off the queue")
        await lab.speaker.configure([keyed()])
        await until(lambda: not lab.heard.up(SECRET_PEER), "its session ends")
        await second.open()
        await until(second.closed.is_set, "it is closed")
        assert not lab.heard.up(SECRET_PEER)
        await first.close()
        await second.close()
        await comes_up(lab, first, KEY)
        await first.close()

    story(body)


def queued(lab: Lab) -> int:
    """Connections that wait to be accepted (`man 8 ss`, Recv-Q of a listening socket)."""
    return sum(int(line.split()[1]) for line in lab.space.run("ss", "-Hltn").splitlines())


def test_a_key_holds_at_every_port() -> None:
    """A peer is known by its address: it is not let in without its key where others are heard."""

    async def body(lab: Lab) -> None:
        secret = RawPeer(SECRET_PEER)
        own_port = replace(keyed(), listen_port=1791)
        await lab.speaker.configure([OTHER, own_port])
        await until(lambda: len(lab.speaker._applied) == 2, "both")
        await not_let_in(lab, secret)
        await not_let_in(lab, secret, port=1791)
        await secret.dial(port=1791, key=KEY)
        await secret.open()
        await until(lambda: lab.heard.up(SECRET_PEER), "up")
        await secret.close()

    story(body)


def test_a_key_that_the_kernel_has_no_room_for_costs_its_peer_alone() -> None:
    """Three keys have room here: the fourth peer is not let in without, and it is said."""

    async def body(lab: Lab) -> None:
        lab.space.run("sysctl", "-qw", "net.core.optmem_max=512")
        mine = [peer(one, passive=True, password=KEY.decode()) for one in RAW]
        await lab.speaker.configure(mine)
        await until(lab.speaker.conditions, "it is said")
        ((subject, why),) = lab.speaker.conditions()
        assert "net.core.optmem_max" in why
        refused = RawPeer(IPv4Address(subject.removeprefix("BGP peer ")))
        others = [RawPeer(one) for one in RAW if one != refused.local]
        assert len(others) == 3
        await refused.dial()
        await refused.open()
        await until(refused.closed.is_set, "it is closed")
        for one in others:
            await not_let_in(lab, RawPeer(one.local))
            await comes_up(lab, one, KEY)
        assert refused.messages == []
        assert not lab.heard.up(refused.local)
        for one in (refused, *others):
            await one.close()
        await lab.speaker.configure([each for each in mine if each.address != refused.local])
        await until(lambda: not lab.speaker.conditions(), "all are let in")
        # The last socket of the family closes with its peers.
        other_family = peer(IPv6Address("fd09::3"), passive=True)
        await lab.speaker.configure([*mine, other_family])
        await until(lab.speaker.conditions, "it is said again")
        await lab.speaker.configure([other_family])
        await until(lambda: not lab.speaker.conditions(), "it is over")

    story(body)
