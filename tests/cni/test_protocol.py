"""Frames and channels: what goes in comes out, nonsense is refused, descriptors travel."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cni.socket import accepting, channel, protocol
from cni.socket.channel import Channel
from tests.support.patience import patient

MESSAGES: list[protocol.Message] = [
    protocol.Hello("daemon", 1, "0.1.0", ["exec"]),
    protocol.Request("calico", {"CNI_COMMAND": "ADD"}, '{"a":1}', 59.5, True),
    protocol.Exec("host-local", {"CNI_ARGS": "x"}, "{}", 3, 1.5),
    protocol.ExecResult(-1, "", 3, 999, "no"),
    protocol.Result(1, "{}", "log"),
    protocol.Undelivered("stdout"),
]


def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(one), Channel(other)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_frame(message: protocol.Message) -> None:
    buffer = bytearray(protocol.encode_frame(message) * 2)
    for _ in range(2):
        body = protocol.take_frame(buffer)
        assert body is not None
        assert protocol.decode_body(body) == message
    assert protocol.take_frame(buffer) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(MESSAGES), max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_frames_may_arrive_in_any_pieces(
    messages: list[protocol.Message], sizes: list[int]
) -> None:
    stream = b"".join(protocol.encode_frame(message) for message in messages)
    buffer, found, at, turn = bytearray(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        buffer += stream[at : at + size]
        at, turn = at + size, turn + 1
        while (body := protocol.take_frame(buffer)) is not None:
            found.append(protocol.decode_body(body))
    assert found == messages


def test_limits_and_nonsense() -> None:
    with pytest.raises(protocol.ProtocolError, match="exceeds the limit"):
        protocol.encode_frame(protocol.Result(0, "x" * protocol.MAX_FRAME))
    with pytest.raises(protocol.ProtocolError, match="exceeds the limit"):
        protocol.take_frame(bytearray((protocol.MAX_FRAME + 1).to_bytes(4, "big")))
    deep = b'{"x":' + b"[" * 100_000
    for bad in (b"", b"junk", b"[]", b"{}", b'{"type":5}', b'{"type":"result"}', b"\xff", deep):
        with pytest.raises(protocol.ProtocolError):
            protocol.decode_body(bad)
    assert protocol.decode_body(b'{"type":"of a later release","x":1}') is None
    later = protocol.decode_body(b'{"type":"result","exit":0,"later":{}}')
    assert later == protocol.Result(0)
    for bad in (b'{"version":1}', deep):
        with pytest.raises(protocol.ProtocolError):
            protocol.decode_pending(bad)


@pytest.mark.asyncio
async def test_a_descriptor_travels_with_its_request() -> None:
    one, other = pair()
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    await one.send(protocol.Hello("executable"))
    await one.send(protocol.Request("calico", {}, "{}", 1.0, True), namespace)
    own = os.fstat(namespace)
    os.close(namespace)
    assert await other.receive() == (protocol.Hello("executable"), None)
    received = await other.receive()
    assert received is not None
    descriptor = received[1]
    assert descriptor is not None
    assert os.fstat(descriptor).st_ino == own.st_ino
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    one.close()
    assert await other.receive() is None
    other.close()


@pytest.mark.asyncio
async def test_unclaimed_descriptors_are_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    one, other = pair()
    null = os.open("/dev/null", os.O_RDONLY)
    for _ in range(5):
        await one.send(protocol.Hello("executable"), null)
        assert await other.receive() == (protocol.Hello("executable"), None)
    os.close(null)
    one.close()
    other.close()
    # What an earlier test left to the collection of garbage may go meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.asyncio
async def test_a_request_that_promises_a_descriptor_must_have_one() -> None:
    one, other = pair()
    await one.send(protocol.Request("calico", {}, "{}", 1.0, True))
    with pytest.raises(protocol.ProtocolError, match="without a descriptor"):
        await other.receive()
    one.close()
    other.close()


@pytest.mark.asyncio
async def test_the_end_inside_a_frame_is_an_error() -> None:
    one, other = pair()
    frame = protocol.encode_frame(protocol.Hello("executable"))
    await asyncio.get_running_loop().sock_sendall(one._sock, frame[:-1])
    one.close()
    with pytest.raises(protocol.ProtocolError, match="inside a frame"):
        await other.receive()
    other.close()


@pytest.mark.asyncio
async def test_sending_and_receiving_large_frames_at_the_same_time() -> None:
    one, other = pair()
    big = protocol.Result(0, "x" * 1_500_000)
    _, _, first, second = await asyncio.gather(
        one.send(big), other.send(big), one.receive(), other.receive()
    )
    assert first == second == (big, None)
    one.close()
    other.close()


@pytest.mark.asyncio
async def test_serving(tmp_path: Path) -> None:
    path = tmp_path / "private" / "cni.sock"
    seen = []

    async def handler(connection: Channel) -> None:
        seen.append((connection.peer_uid, connection.peer_pid))
        received = await connection.receive()
        assert received is not None
        await connection.send(received[0])

    task = asyncio.create_task(accepting.serve(accepting.listen(path), handler))
    again = accepting.listen(path)  # a second start takes the path over without a gap
    replacement = asyncio.create_task(accepting.serve(again, handler))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["cni.sock"]
    client = await channel.connect(path)
    await client.send(protocol.Undelivered("x"))
    assert await client.receive() == (protocol.Undelivered("x"), None)
    assert await client.receive() is None
    assert seen == [(os.geteuid(), os.getpid())]
    client.close()
    for server in (task, replacement):
        server.cancel()
    await asyncio.gather(task, replacement, return_exceptions=True)
    with pytest.raises(ConnectionRefusedError):
        await channel.connect(path)


@pytest.mark.asyncio
async def test_without_descriptors_callers_wait(tmp_path: Path) -> None:
    """CHAN-2: EMFILE in accept, and more callers than are served at a time."""
    at_once = most = 0

    async def handler(connection: Channel) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        connection.asked = True
        assert await connection.receive()
        at_once -= 1
        await connection.send(protocol.Hello("daemon"))

    path = tmp_path / "private" / "cni.sock"
    serving = asyncio.create_task(accepting.serve(accepting.listen(path), handler, limit=3))
    clients = [await channel.connect(path) for _ in range(8)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        async with asyncio.timeout(patient(5)):
            while at_once < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
        for client in clients:
            await client.send(protocol.Hello("executable"))
        await asyncio.sleep(0.3)
        assert not serving.done()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            assert await client.receive() == (protocol.Hello("daemon"), None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            client.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert most == 3
