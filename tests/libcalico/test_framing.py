"""Frames over real unix sockets: round trips, limits, strangers, later releases."""

from __future__ import annotations

import asyncio
import stat
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.local import framing
from libcalico.local.frames import MAX_FRAME, ProtocolError, decode, encode
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.listening import serve_unix
from libcalico.local.node_api import Await, Hello, InForce, Paths, PathsEnd
from libcalico.local.node_api import Path as BgpPath
from tests.support.patience import HANG


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "node.sock"


async def echo(connection: Connection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.mark.asyncio
async def test_messages_come_back_in_order(path: Path) -> None:
    async with await serve_unix(path, echo), await connect_unix(path, Hello("bgp")) as client:
        assert client.process == "felix"
        sent = [Paths(withdrawn=[f"10.65.{n}.0/26"]) for n in range(50)]
        for message in sent:
            await client.send(message)
        assert [await client.receive() for _ in sent] == sent


@pytest.mark.asyncio
async def test_nobody_else_can_reach_the_socket(path: Path) -> None:
    async with await serve_unix(path, echo):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [entry.name for entry in path.parent.iterdir()] == ["node.sock"]
    assert not path.exists()


@pytest.mark.asyncio
async def test_a_stale_path_is_replaced_and_a_successor_is_not_removed(path: Path) -> None:
    first = await serve_unix(path, echo)
    second = await serve_unix(path, echo)
    await first.close()
    async with second, await connect_unix(path, Hello("cni")) as client:
        await client.send(PathsEnd())
        assert await client.receive() == PathsEnd()


@pytest.mark.asyncio
async def test_a_stranger_is_turned_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_peer_uid", lambda writer: 12345)
    async with await serve_unix(path, echo):
        with pytest.raises((ConnectionError, ProtocolError)):
            await connect_unix(path, Hello("bgp"))


@pytest.mark.asyncio
async def test_unknown_messages_are_skipped(path: Path) -> None:
    async with await serve_unix(path, echo), await connect_unix(path, Hello("bgp")) as client:
        body = b'{"type":"of_next_year","x":1}'
        client._writer.write(struct.pack("!I", len(body)) + body)
        await client.send(PathsEnd())
        assert await client.receive() == PathsEnd()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!I", MAX_FRAME + 1),
        struct.pack("!I", 3) + b"nix",
        struct.pack("!I", 31) + b'{"type":"await","namespace":12}',
    ],
    ids=["too-long", "no-json", "malformed"],
)
async def test_a_broken_frame_ends_the_connection(path: Path, frame: bytes) -> None:
    async with await serve_unix(path, echo), await connect_unix(path, Hello("bgp")) as client:
        client._writer.write(frame)
        await client.send(PathsEnd())
        assert await asyncio.wait_for(client.receive(), HANG) is None


@pytest.mark.asyncio
async def test_the_largest_frame_passes_and_one_more_byte_does_not(path: Path) -> None:
    async with await serve_unix(path, echo), await connect_unix(path, Hello("cni")) as client:
        empty = len(encode(InForce("", "", ""))) - 4
        largest = InForce("", "", "", error="x" * (MAX_FRAME - empty))
        await client.send(largest)
        assert await client.receive() == largest
        with pytest.raises(ProtocolError, match="at most 2097152"):
            await client.send(InForce("", "", "", error=largest.error + "x"))
        await client.send(PathsEnd())
        assert await client.receive() == PathsEnd()


@pytest.mark.asyncio
async def test_a_silent_peer_does_not_hold_connect_for_ever(path: Path) -> None:
    path.parent.mkdir()
    server = await asyncio.start_unix_server(lambda r, w: None, str(path))
    async with server:
        with pytest.raises(ProtocolError, match="no hello"):
            await connect_unix(path, Hello("bgp"), timeout=0.1)


@pytest.mark.asyncio
async def test_the_first_frame_must_be_a_hello(path: Path) -> None:
    async with await serve_unix(path, echo):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(encode(PathsEnd()))
        rest = await asyncio.wait_for(reader.read(), HANG)
        assert rest == encode(Hello("felix"))
        writer.close()


def test_fields_of_a_later_release_are_ignored() -> None:
    body = b'{"type":"await","namespace":"a","name":"b","container_id":"c","later":[1]}'
    assert decode(body) == Await("a", "b", "c")


@given(st.lists(st.text(), max_size=5), st.lists(st.text(), max_size=3))
def test_every_message_survives_its_frame(withdrawn: list[str], hops: list[str]) -> None:
    message = Paths(updated=[BgpPath("p", hops)], withdrawn=withdrawn)
    assert decode(encode(message)[4:]) == message
