"""Best paths to felix over a real socket: snapshot, end mark, changes, reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from bgp.agent import publish
from bgp.agent.publish import Publisher
from bgp.decide.routing import BestPath
from libcalico.local import framing, node_api
from libcalico.local.listening import serve_unix
from libcalico.local.node_api import Path as ToldPath
from libcalico.local.node_api import Paths, PathsBegin, PathsEnd, RefusedPath
from tests.support.patience import HANG

pytestmark = pytest.mark.asyncio


@dataclass
class Felix:
    """Listens, and applies what it hears as felix does."""

    path: Path
    heard: list[Any] = field(default_factory=list)
    table: dict[str, ToldPath] = field(default_factory=dict)
    connection: framing.Connection | None = None

    async def hear(self, connection: framing.Connection) -> None:
        self.connection = connection
        named: set[str] = set()
        async for message in connection:
            self.heard.append(message)
            if isinstance(message, Paths):
                self.table.update({each.prefix: each for each in message.updated})
                named |= {each.prefix for each in message.updated}
                for prefix in message.withdrawn:
                    self.table.pop(prefix, None)
            elif isinstance(message, PathsEnd):
                self.table = {name: self.table[name] for name in named if name in self.table}

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(HANG):
            while not what():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    @property
    def kinds(self) -> list[type]:
        return [type(message) for message in self.heard]


@asynccontextmanager
async def running(publisher: Publisher) -> AsyncIterator[None]:
    task = asyncio.create_task(publisher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def change(number: int, hop: str | None = "10.0.0.2") -> tuple[Any, BestPath | None]:
    net = ip_network(f"10.{65 + number // 256}.{number % 256}.0/24")
    return net, BestPath((hop,), "node", "") if hop else None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "node.sock"


async def test_snapshot_then_changes(path: Path) -> None:
    felix, publisher = Felix(path), Publisher(path)
    publisher.publish([change(1), change(2)])
    async with running(publisher), await serve_unix(path, felix.hear):
        await felix.until(lambda: len(felix.table) == 2)
        assert felix.kinds == [PathsBegin, Paths]  # the gate has not passed: no end mark
        publisher.publish([change(3)])
        await felix.until(lambda: len(felix.table) == 3)
        publisher.complete()
        await felix.until(lambda: felix.kinds[-1] is PathsEnd)
        publisher.publish([change(1, None), change(2, "10.0.0.3")])
        await felix.until(lambda: len(felix.table) == 2)
        await felix.until(lambda: felix.table["10.65.2.0/24"].next_hops == ["10.0.0.3"])
        assert felix.kinds.count(PathsEnd) == 1


async def test_felix_restarts(path: Path) -> None:
    """PUB-1: a new felix gets the whole picture again, with its end mark."""
    publisher = Publisher(path)
    publisher.publish([change(1)])
    publisher.complete()
    async with running(publisher):
        first = Felix(path)
        async with await serve_unix(path, first.hear):
            await first.until(lambda: PathsEnd in first.kinds)
        publisher.publish([change(1, None), change(2)])
        second = Felix(path)
        async with await serve_unix(path, second.hear):
            await second.until(lambda: PathsEnd in second.kinds)
            assert second.kinds == [PathsBegin, Paths, PathsEnd]
            assert set(second.table) == {"10.65.2.0/24"}


async def test_bursts_are_coalesced_and_split(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "BATCH", 400)  # a prefix with one next hop counts 4
    felix, publisher = Felix(path), Publisher(path)
    publisher.complete()
    async with running(publisher), await serve_unix(path, felix.hear):
        await felix.until(lambda: PathsEnd in felix.kinds)
        for hop in ("10.0.0.2", "10.0.0.3", "10.0.0.4"):
            publisher.publish([change(number, hop) for number in range(250)])
        await felix.until(lambda: len(felix.table) == 250)
        batches = [message for message in felix.heard if isinstance(message, Paths)]
        assert [len(batch.updated) for batch in batches] == [100, 100, 50]
        assert {tuple(each.next_hops) for each in felix.table.values()} == {("10.0.0.4",)}


async def test_felix_answers(path: Path) -> None:
    felix, answers = Felix(path), list[Any]()
    publisher = Publisher(path, answers.append)
    async with running(publisher), await serve_unix(path, felix.hear):
        await felix.until(lambda: felix.connection is not None)
        assert felix.connection is not None
        await felix.connection.send(RefusedPath("10.0.0.0/8", "not inside a pool"))
        await felix.connection.send(node_api.Fact(["10.0.0.1"]))
        await felix.until(lambda: len(answers) == 2)
        assert publisher.connected


async def test_many_next_hops_still_fit_into_frames(path: Path) -> None:
    """5000 prefixes with 64 next hops each: more than one frame could hold."""
    felix, publisher = Felix(path), Publisher(path)
    hops = [f"2001:db8:1111:2222:3333:4444:5555:{0x1000 + number:x}" for number in range(64)]
    wide = BestPath(tuple(hops), "node", "")
    publisher.publish((net, wide) for net, _ in (change(number) for number in range(5000)))
    publisher.complete()
    async with running(publisher), await serve_unix(path, felix.hear):
        await felix.until(lambda: PathsEnd in felix.kinds)
        assert len(felix.table) == 5000


async def test_what_comes_and_goes_while_felix_is_away_costs_nothing() -> None:
    publisher = Publisher(Path("/nonexistent/node.sock"))
    for number in range(5000):
        net = ip_network((10 << 24 | number << 8, 24))
        publisher.publish([(net, BestPath(("10.0.0.2",), origin="node", peer="10.0.0.2"))])
        publisher.publish([(net, None)])
    assert publisher.current == {}
    assert publisher._pending == {}


async def test_a_change_while_felix_does_not_read_the_end_mark_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PUB-1: a full socket holds the end mark up, and the picture changes meanwhile."""
    felix, publisher = Felix(path), Publisher(path)
    publisher.publish([change(1)])
    publisher.complete()
    send = framing.Connection.send

    async def slow(self: framing.Connection, message: Any) -> None:
        await send(self, message)
        if isinstance(message, PathsEnd):
            publisher.publish([change(1, None), change(2)])

    monkeypatch.setattr(framing.Connection, "send", slow)
    async with running(publisher), await serve_unix(path, felix.hear):
        await felix.until(lambda: set(felix.table) == {str(change(2)[0])})
