"""`Connection.attend`: messages told in the turn in which their bytes come, over real sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.local.frames import MAX_FRAME, Cutter, ProtocolError, encode
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.listening import serve_unix
from libcalico.local.node_api import Await, Hello, InForce, PathsEnd, Retract
from tests.support.patience import HANG

LIMIT = HANG


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "node.sock"


class Ear:
    """A server that attends, and how each attendance ended."""

    def __init__(self, tell: Callable[[Any], None] | None = None, pause: float = 0.0) -> None:
        self.heard: list[Any] = []
        self.ends: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self._tell, self._pause = tell or self.heard.append, pause

    async def __call__(self, connection: Connection) -> None:
        await asyncio.sleep(self._pause)
        try:
            await connection.attend(self._tell)
        except Exception as problem:
            self.ends.put_nowait(problem)
        else:
            self.ends.put_nowait(None)

    async def end(self) -> BaseException | None:
        return await asyncio.wait_for(self.ends.get(), LIMIT)


@pytest.mark.asyncio
@pytest.mark.parametrize("pause", [0.0, 0.1], ids=["awaited", "held-by-the-reader"])
async def test_all_messages_are_told_in_order_until_the_peer_closes(
    path: Path, pause: float
) -> None:
    """Also those that came before anybody attended, and the end that had come by then."""
    ear = Ear(pause=pause)
    sent = [InForce("ns", str(number), "c", error="x" * number * 50) for number in range(200)]
    async with await serve_unix(path, ear):
        client = await connect_unix(path, Hello("cni"))
        for message in sent:
            await client.send(message)
        await client.close()
        assert await ear.end() is None
    assert ear.heard == sent


@pytest.mark.asyncio
async def test_a_message_is_told_in_the_turn_in_which_it_comes(path: Path) -> None:
    """What a task would hear is heard a turn later at the earliest."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[float] = loop.create_future()
    async with (
        await serve_unix(path, Ear()) as server,
        await connect_unix(path, Hello("cni")) as it,
    ):
        del server
        attending = asyncio.create_task(it.attend(lambda _: told.set_result(turns)))
        await asyncio.sleep(0.05)
        protocol: Any = it._writer.transport.get_protocol()
        turns = 0
        loop.call_soon(protocol.data_received, encode(PathsEnd()))
        loop.call_soon(lambda: None)
        while not told.done():
            turns += 1
            await asyncio.sleep(0)
        assert told.result() == 1
        attending.cancel()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack("!I", MAX_FRAME + 1), "at most"),
        (struct.pack("!I", 3) + b"nix", "not a tagged JSON"),
        (struct.pack("!I", 31) + b'{"type":"await","namespace":12}', "malformed"),
    ],
    ids=["too-long", "no-json", "malformed"],
)
async def test_after_a_broken_frame_nothing_is_told(path: Path, frame: bytes, why: str) -> None:
    """FRM-2."""
    ear = Ear()
    async with await serve_unix(path, ear), await connect_unix(path, Hello("cni")) as client:
        good = encode(PathsEnd())
        client._writer.write(good + frame + good)
        problem = await ear.end()
        assert isinstance(problem, ProtocolError)
        assert why in str(problem)
        assert ear.heard == [PathsEnd()]
        assert await asyncio.wait_for(client.receive(), LIMIT) is None


@pytest.mark.asyncio
async def test_what_fails_in_telling_ends_the_connection_and_no_other(path: Path) -> None:
    def refuse(message: Any) -> None:
        if isinstance(message, Retract):
            raise ValueError("not this one")

    ear = Ear(refuse)
    async with await serve_unix(path, ear), await connect_unix(path, Hello("cni")) as other:
        async with await connect_unix(path, Hello("cni")) as client:
            await client.send(Retract("ns", "name", "c"))
            assert isinstance(await ear.end(), ValueError)
            assert await asyncio.wait_for(client.receive(), LIMIT) is None
        await other.send(Await("ns", "name", "c"))
        await other.close()
        assert await ear.end() is None


@given(
    names=st.lists(st.text(max_size=20), max_size=8),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
)
def test_messages_are_the_same_however_they_are_cut(names: list[str], cuts: list[int]) -> None:
    sent = [InForce("ns", name, "c") for name in names]
    whole = b"".join(map(encode, sent))
    told: list[Any] = []
    cutter = Cutter(told.append)
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    for start, end in pairwise(ends):
        cutter.feed(whole[start:end])
    assert told == sent
