"""The contract of `bgp.speaker.interface`, for every speaker: ExaBGP, and one in memory.

Two speakers, `a` at 127.0.0.1 and `b` at 127.0.0.2, on ports of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_network
from pathlib import Path

import pytest

from bgp.speaker.exabgp.speaker import ExaBGPSpeaker
from bgp.speaker.exabgp.watchdog import Watchdog
from bgp.speaker.interface import (
    Announced,
    DownReason,
    EndOfRib,
    Event,
    Family,
    PathsReceived,
    Peer,
    PeerDown,
    PeerOpen,
    PeerUp,
    Route,
    Speaker,
    SpeakerDown,
    Withdrawn,
)
from tests.bgp.memory_speaker import Fabric, MemorySpeaker
from tests.bgp.session_lab import HOLD
from tests.support import stopping
from tests.support.etcd import free_ports
from tests.support.patience import HANG

A, B, C = (IPv4Address(f"127.0.0.{number}") for number in (1, 2, 3))
R1, R2 = Route(ip_network("10.65.1.0/26")), Route(ip_network("10.65.2.0/26"))

Factory = Callable[[], Speaker]


def peer(local: IPv4Address, remote: IPv4Address, port: int) -> Peer:
    return Peer(
        address=remote,
        remote_as=64512,
        local_address=local,
        local_as=64512,
        router_id=local,
        families=(Family.IPV4,),
        passive=str(remote) > str(local),
        port=port,
        listen_port=port,
        hold_time=HOLD,
    )


@dataclass
class Listener:
    """Collects a speaker's events."""

    speaker: Speaker
    heard: list[Event] = field(default_factory=list)

    async def run(self) -> None:
        async for event in self.speaker.events():
            self.heard.append(event)

    async def until(self, what: Callable[[list[Event]], object]) -> None:
        async with asyncio.timeout(HANG):
            while not what(self.heard):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def prefixes(self) -> set[object]:
        """What the other side offers now."""
        now: set[object] = set()
        for event in self.heard:
            if isinstance(event, PathsReceived):
                now -= {each.prefix for each in event.withdrawn}
                now |= {each.prefix for each in event.announced}
            elif isinstance(event, (PeerDown, SpeakerDown)):
                now = set()
        return now


def count(kind: type[Event]) -> Callable[[list[Event]], int]:
    return lambda heard: sum(isinstance(event, kind) for event in heard)


@pytest.fixture(params=["exabgp", "memory"])
def factory(request: pytest.FixtureRequest) -> Factory:
    if request.param == "memory":
        fabric = Fabric()
        return lambda: MemorySpeaker(fabric)
    real: Factory = request.getfixturevalue("exabgp")
    return real


@pytest.fixture
def exabgp() -> Iterator[Factory]:
    directory = Path(tempfile.mkdtemp(prefix="mspk"))
    directory.chmod(0o755)
    numbers = iter(range(100))
    yield lambda: ExaBGPSpeaker(directory / str(next(numbers)))
    shutil.rmtree(directory, ignore_errors=True)


def story(factory: Factory, body: Callable[[Listener, Listener, int], Awaitable[None]]) -> None:
    async def run() -> None:
        speakers = [Listener(factory()), Listener(factory())]
        tasks = [asyncio.create_task(each.run()) for each in speakers]
        try:
            async with asyncio.timeout(5 * HANG):
                await body(speakers[0], speakers[1], free_ports(1)[0])
        finally:
            for each in speakers:
                await each.speaker.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_contract(factory: Factory) -> None:
    """SPK-1, 2, 3, 5 and 6, as one life of a session."""

    async def body(a: Listener, b: Listener, port: int) -> None:
        await a.speaker.announce([R1])
        a.speaker.withhold(True)
        await a.speaker.configure([peer(A, B, port)])
        await b.speaker.configure([peer(B, A, port)])
        # SPK-2, SPK-3: open, up, the route, End-of-RIB when it may come, in this order
        await b.until(lambda _: b.prefixes() == {R1.prefix})
        assert not count(EndOfRib)(b.heard)
        a.speaker.withhold(False)
        await b.until(count(EndOfRib))
        seen = [event for event in b.heard if isinstance(event, (PeerOpen, PeerUp, EndOfRib))]
        assert [type(event) for event in seen] == [PeerOpen, PeerUp, EndOfRib]
        assert seen[1] == PeerUp(A, peer(B, A, port))  # SPK-6
        opened = seen[0]
        assert isinstance(opened, PeerOpen)
        assert (opened.asn, opened.restart_time) == (64512, 120)
        assert opened.forwarding == {Family.IPV4}
        assert b.prefixes() == {R1.prefix}
        first = next(e for e in b.heard if isinstance(e, PathsReceived) and e.announced)
        assert b.heard.index(first) < b.heard.index(EndOfRib(A, Family.IPV4))
        assert first.announced == (Announced(R1.prefix, A),)
        # announcing is declarative; a route for other peers only is not offered
        await a.speaker.announce([R2, replace(R1, peers=frozenset({C}))])
        await b.until(lambda _: b.prefixes() == {R2.prefix})
        gone = [e for e in b.heard if isinstance(e, PathsReceived) and e.withdrawn]
        assert gone[0].withdrawn == (Withdrawn(R1.prefix),)
        # SPK-1: another peer comes and goes
        await b.speaker.configure([peer(B, A, port), peer(B, C, port)])
        await asyncio.sleep(1.0)
        await b.speaker.configure([peer(B, A, port)])
        await asyncio.sleep(1.0)
        assert not count(PeerDown)(b.heard)
        assert not count(PeerDown)(a.heard)
        # SPK-5: no NOTIFICATION on close
        await a.speaker.close()
        await b.until(count(PeerDown))
        assert next(e for e in b.heard if isinstance(e, PeerDown)).reason is DownReason.CLOSED
        assert count(PeerDown)(b.heard) == 1

    story(factory, body)


UNREADABLE = b"update 127.0.0.1 4 no hexadecimal"


@pytest.mark.parametrize("refreshes", [True, False], ids=["refresh", "reset"])
def test_what_is_unreadable_is_asked_for_once_more(
    exabgp: Factory, refreshes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BGP-7: the other side sends its paths again, in the same session if it knows how to."""

    async def body(a: Listener, b: Listener, port: int) -> None:
        await a.speaker.announce([R1])
        await a.speaker.configure([peer(A, B, port)])
        await b.speaker.configure([peer(B, A, port)])
        await b.until(count(EndOfRib))
        opened = next(event for event in b.heard if isinstance(event, PeerOpen))
        assert opened.route_refresh
        assert isinstance(b.speaker, ExaBGPSpeaker)
        b.speaker._sessions[A].opened = replace(opened, route_refresh=refreshes)
        before = count(PathsReceived)(b.heard)
        b.speaker._on_lines([UNREADABLE], [])
        b.speaker._on_lines([UNREADABLE], [])
        await b.until(lambda heard: count(PathsReceived)(heard) > before)
        assert b.prefixes() == {R1.prefix}
        assert count(PeerDown)(b.heard) == (not refreshes)
        # Once more, but not at once.
        asked: list[str] = []
        monkeypatch.setattr(b.speaker, "_command", asked.extend)
        b.speaker._on_lines([UNREADABLE], [])
        b.speaker._mend(asyncio.get_running_loop().time())
        assert asked == []
        assert A in b.speaker._repairs.damaged
        b.speaker._mend(asyncio.get_running_loop().time() + 601)
        assert len(asked) == 1

    story(exabgp, body)


@contextlib.contextmanager
def impatient(watchdog: Watchdog) -> Iterator[None]:
    """A child that cannot answer is given up as early as with the shortest hold time."""
    shortest = 3.0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("wants_ping", "frozen"):
            judge = getattr(watchdog, name)
            patch.setattr(watchdog, name, lambda _, judge=judge: judge(shortest))
        yield


def test_a_child_that_freezes_in_a_reload_is_killed_in_time(exabgp: Factory) -> None:
    """BGP-3: the watchdog runs during a reload, too; how long it waits, test_watchdog.py says."""

    async def body(a: Listener, b: Listener, port: int) -> None:
        await a.speaker.announce([R1])
        await a.speaker.configure([peer(A, B, port)])
        await b.speaker.configure([peer(B, A, port)])
        await b.until(count(EndOfRib))
        assert isinstance(a.speaker, ExaBGPSpeaker)
        pid = a.speaker.child_pid
        assert pid is not None
        stopping.pause(pid)
        with impatient(a.speaker._watchdog):
            await a.speaker.configure([peer(A, B, port), peer(A, C, port)])
            await a.until(count(SpeakerDown))
        await b.until(lambda heard: count(EndOfRib)(heard) == 2)
        downs = [event for event in b.heard if isinstance(event, PeerDown)]
        assert [down.reason for down in downs] == [DownReason.CLOSED]
        assert set(a.speaker._applied) == {B, C}

    story(exabgp, body)


@pytest.mark.promise("F-43")
def test_death_of_the_speaker(factory: Factory) -> None:
    """SPK-4: one SpeakerDown, then everything again; the other side sees a plain close."""

    async def body(a: Listener, b: Listener, port: int) -> None:
        await a.speaker.announce([R1])
        await a.speaker.configure([peer(A, B, port)])
        await b.speaker.configure([peer(B, A, port)])
        await b.until(count(EndOfRib))
        await a.until(count(EndOfRib))
        if isinstance(a.speaker, ExaBGPSpeaker):
            child = a.speaker._child
            assert child is not None
            child._kill()
        else:
            assert isinstance(a.speaker, MemorySpeaker)
            a.speaker.crash()
        await b.until(lambda heard: count(EndOfRib)(heard) == 2)
        await a.until(lambda heard: count(PeerUp)(heard) == 2)
        assert count(SpeakerDown)(a.heard) == 1
        assert count(PeerDown)(a.heard) == 0
        downs = [event for event in b.heard if isinstance(event, PeerDown)]
        assert [down.reason for down in downs] == [DownReason.CLOSED]
        assert b.prefixes() == {R1.prefix}

    story(factory, body)
