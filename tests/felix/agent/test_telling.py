"""NFR-1: one reader for all who listen, and rules that tell as much as any of them needs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from felix.rules.nflog_prefix import Tell
from felix.telling import Telling
from linux import nflog
from linux.errors import KernelError
from linux.nflog import Logged
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import until


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("telling") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        space.run("nft", "add table ip t")
        space.run("nft", "add chain ip t out { type filter hook output priority 0; }")
        for port, group in ((9, 1), (10, 2)):
            rule = f'udp dport {port} log prefix "DPE{port}|a" group {group}'
            space.run("nft", f"add rule ip t out {rule}")
        yield space


class Rules:
    """The rules of a node: what is wanted, and what stands."""

    prepared = True

    def __init__(self) -> None:
        self.telling = self.tells = Tell.NOTHING
        self.asked: list[Tell] = []

    def tell(self, tell: Tell) -> None:
        self.telling = tell
        self.asked.append(tell)


class Plane:
    def __init__(self) -> None:
        self.rules = Rules()
        self.state = type("State", (), {"failures": {}})()


class Listener:
    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.why = ""

    def heard(self, packets: Sequence[Logged], lost: int) -> None:
        self.prefixes += [packet.prefix for packet in packets]

    def deaf(self, why: str) -> None:
        self.why = why


def telling() -> tuple[Telling, Plane, list[str]]:
    plane, changes = Plane(), list[str]()
    made: Any = plane

    async def across(change: Callable[[], Awaitable[None]]) -> None:
        changes.append("kept")
        await change()

    return Telling(made, across), plane, changes


def send(*ports: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for port in ports:
            sender.sendto(b"x", ("127.0.0.1", port))


def written(one: Telling, plane: Plane) -> None:
    """A turn of the main loop that wrote the rules."""
    plane.rules.tells = plane.rules.telling
    one.published()


def test_both_hear_by_one_reader_and_rules_tell_the_most(space: Namespace) -> None:
    async def story() -> None:
        one, plane, changes = telling()
        drops, flows = Listener(), Listener()
        one.join(drops, Tell.DENIED)
        await until(lambda: plane.rules.telling is Tell.DENIED)
        written(one, plane)
        one.join(flows, Tell.FLOWS)
        await until(lambda: plane.rules.telling is Tell.FLOWS)
        written(one, plane)
        assert one.tells is Tell.FLOWS
        send(9, 10)
        both = {"DPE9|a", "DPE10|a"}
        await until(lambda: set(drops.prefixes) == set(flows.prefixes) == both)
        one.leave(flows)
        one.leave(flows)
        await until(lambda: plane.rules.telling is Tell.DENIED)
        written(one, plane)
        send(9)
        await until(lambda: len(drops.prefixes) == 3)
        assert len(flows.prefixes) == 2
        with pytest.raises(KernelError, match="NFLOG group 1"):
            nflog.Reader([1])
        one.leave(drops)
        await until(lambda: plane.rules.telling is Tell.NOTHING)
        await until(lambda: one._reader is None)
        nflog.Reader([1, 2]).close()
        written(one, plane)
        assert changes == ["kept"] * 4, "counts are kept across each change of the rules"
        one.close()

    asyncio.run(story())


def test_rules_that_are_not_written_yet_tell_from_the_first(space: Namespace) -> None:
    async def story() -> None:
        one, plane, changes = telling()
        plane.rules.prepared = False
        one.join(Listener(), Tell.FLOWS)
        assert plane.rules.asked == [Tell.FLOWS], "at once: a restart writes nothing twice"
        await asyncio.sleep(0)
        assert changes == []
        one.close()

    asyncio.run(story())


def test_a_group_of_another_program_is_an_error_that_says_so(space: Namespace) -> None:
    async def story() -> None:
        one, plane, _ = telling()
        with nflog.Reader([2]):
            with pytest.raises(KernelError, match="another program reads them"):
                one.join(Listener(), Tell.DENIED)
            assert plane.rules.asked == []
        one.join(Listener(), Tell.DENIED)
        one.close()
        nflog.Reader([1, 2]).close()

    asyncio.run(story())


def test_a_reader_that_breaks_tells_all_listeners(space: Namespace) -> None:
    async def story() -> None:
        one, plane, _ = telling()
        listener = Listener()
        one.join(listener, Tell.FLOWS)
        await until(lambda: plane.rules.telling is Tell.FLOWS)
        written(one, plane)

        def broken(most: int = 0) -> list[Logged]:
            raise KernelError(5, "read NFLOG")

        assert one._reader is not None
        one._reader.read = broken  # type: ignore[method-assign]
        send(9)
        await until(lambda: listener.why)
        await until(lambda: plane.rules.telling is Tell.NOTHING)
        one.join(listener, Tell.FLOWS)
        one.close()

    asyncio.run(story())
