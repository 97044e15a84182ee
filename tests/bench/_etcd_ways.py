"""Three clients of etcd with one face, for `etcd_calls`; started as a program, one short program.

What only one of them needs is imported by it: the program of a way pays for that way alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from libcalico.datastore.etcd.proto import etcd_pb2 as pb

if TYPE_CHECKING:
    from libcalico.datastore.etcd.direct_call import _Line
    from libcalico.datastore.etcd.http2 import Peer
    from tests.bench._http2_library import LibraryWire

HOST, TIMEOUT = "127.0.0.1", 10.0
LEADER = (("hasleader", "true"),)
RANGE, TXN = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
WATCH = "/etcdserverpb.Watch/Watch"
NextEvent = Callable[[], Awaitable[Any]]


class Client(Protocol):
    """One way of calling etcd."""

    name: str

    async def connect(self) -> None:
        """Make the connection."""

    async def unary(self, path: str, request: bytes) -> Any:
        """One call, its answer decoded."""

    async def watch(self, key: bytes) -> NextEvent:
        """Watch one key from now on; the function waits for the next answer."""

    async def close(self) -> None:
        """End the connection."""


def decoded(path: str, body: bytes) -> Any:
    """The answer of a unary call."""
    kind = pb.RangeResponse if path == RANGE else pb.TxnResponse
    return kind.FromString(body)


def watch_request(key: bytes) -> bytes:
    """Begins a watch of one key."""
    request = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key))
    return bytes(request.SerializeToString())


class Grpc:
    """grpc.aio, as the stubs use it."""

    name = "grpc"

    def __init__(self, port: int) -> None:
        import grpc.aio

        self._channel = grpc.aio.insecure_channel(f"ipv4:{HOST}:{port}")

    async def connect(self) -> None:
        """Wait for the channel."""
        await self._channel.channel_ready()
        self._calls = {
            path: self._channel.unary_unary(path, None, lambda body, path=path: decoded(path, body))
            for path in (RANGE, TXN)
        }

    async def unary(self, path: str, request: bytes) -> Any:
        """One call."""
        return await self._calls[path](request, timeout=TIMEOUT, metadata=LEADER)

    async def watch(self, key: bytes) -> NextEvent:
        """A stream of answers."""
        method = self._channel.stream_stream(WATCH, None, pb.WatchResponse.FromString)
        stream = method(metadata=LEADER)
        await stream.write(watch_request(key))
        await stream.read()
        return stream.read  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class Library:
    """The package h2."""

    name = "h2"

    def __init__(self, port: int) -> None:
        from libcalico.datastore.etcd.http2 import Peer
        from tests.bench._http2_library import LibraryWire

        self._wire: LibraryWire = LibraryWire(Peer(HOST, port))

    async def connect(self) -> None:
        """Connect."""
        await self._wire.connect()
        paths = (RANGE, TXN, WATCH)
        self._headers = {path: self._wire.headers(path, LEADER) for path in paths}

    async def unary(self, path: str, request: bytes) -> Any:
        """One call."""
        return decoded(path, await self._wire.unary(self._headers[path], request, TIMEOUT))

    async def watch(self, key: bytes) -> NextEvent:
        """A stream of answers."""
        answers = asyncio.Queue[bytes]()
        request, headers = watch_request(key), self._headers[WATCH]
        self._wire.begin(headers, request, answers.put_nowait, ends=False)

        async def next_event() -> Any:
            return pb.WatchResponse.FromString(await answers.get())

        await next_event()
        return next_event

    async def close(self) -> None:
        """End the connection."""
        self._wire.end("closed")


class Own:
    """The frames of the product."""

    name = "own"

    def __init__(self, port: int) -> None:
        from libcalico.datastore.etcd.direct_call import _Line
        from libcalico.datastore.etcd.http2 import Peer

        self._peer: Peer = Peer(HOST, port)
        self._line: _Line = _Line()

    async def connect(self) -> None:
        """Connect."""
        if problem := await self._peer.reach(self._line):
            raise OSError(problem)
        paths = (RANGE, TXN)
        self._headers = {path: self._peer.headers(path.encode()) for path in paths}

    async def unary(self, path: str, request: bytes) -> Any:
        """One call, as `DirectCall.call` makes it."""
        from libcalico.datastore.etcd import http2

        deadline = http2.field(b"grpc-timeout", b"%dm" % int(TIMEOUT * 1000))
        block = self._headers[path] + deadline + http2.fields(LEADER)
        return decoded(path, await self._line.call(block, http2.message(request), TIMEOUT))

    async def watch(self, key: bytes) -> NextEvent:
        """A stream of answers."""
        from libcalico.datastore.etcd.stream import Streams

        self._streams = Streams(self._peer, WATCH.encode())
        stream = await self._streams.open(LEADER, 0.0)
        stream.write(watch_request(key))
        await stream.read()
        stream.stands()

        async def next_event() -> Any:
            return pb.WatchResponse.FromString(await stream.read())

        return next_event

    async def close(self) -> None:
        """End the connections."""
        self._line.end("closed")
        if hasattr(self, "_streams"):
            self._streams.close()


WAYS: dict[str, Callable[[int], Client]] = {way.name: way for way in (Grpc, Library, Own)}


async def read_once(name: str, port: int) -> None:
    """A short program: one Range of all nodes."""
    client = WAYS[name](port)
    start = b"/calico/resources/v3/projectcalico.org/nodes/"
    request = pb.RangeRequest(key=start, range_end=start[:-1] + b"0")
    await client.connect()
    answer = await client.unary(RANGE, request.SerializeToString())
    assert answer.kvs
    await client.close()


async def write(port: int, key: str, count: int) -> None:
    """Put one key again and again, every two milliseconds."""
    client = Grpc(port)
    await client.connect()
    request = pb.TxnRequest()
    put = pb.PutRequest(key=key.encode(), value=b"x" * 800)
    request.success.add().request_put.CopyFrom(put)
    for _ in range(count):
        await client.unary(TXN, request.SerializeToString())
        await asyncio.sleep(0.002)
    await client.close()


def main(name: str, port: int, *rest: str) -> None:
    """One program."""
    if name == "write":
        asyncio.run(write(port, rest[0], int(rest[1])))
    elif name == "asyncio":
        asyncio.run(asyncio.sleep(0))
    else:
        asyncio.run(read_once(name, port))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
