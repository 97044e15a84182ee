"""HTTP with servers that answer well, badly, slowly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from libcalico.kubernetes import protobuf, wire
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.deadline import Deadline
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.errors import ApiError, Busy, Gone, Unauthorized, Unreachable
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import SECRETS
from libcalico.kubernetes.service_objects import ENDPOINT_SLICES
from libcalico.kubernetes.wire import Connection
from libcalico.process import unlooped
from tests.support.packing import STATUS, packed
from tests.support.patience import HANG, patient

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Ask = Callable[[int], Awaitable[bytes]]
OK = b"HTTP/1.1 200 OK\r\n"


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A server of one function; gives its port."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    running = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()
        for writer in writers:
            writer.transport.abort()


def says(*answers: bytes, end: bool = True) -> Serve:
    """Answers one request after the other with these bytes, piece by piece.

    What is not ended comes in one piece, so that silence is only what follows it.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            step = max(7, len(answer) // 200 if end else len(answer))
            for at in range(0, len(answer), step):
                writer.write(answer[at : at + step])
                await writer.drain()
                await asyncio.sleep(0)
        if end:
            writer.close()
        else:
            await asyncio.sleep(60)

    return serve


async def asked(port: int) -> bytes:
    connection = await Connection.open("127.0.0.1", port, None)
    try:
        async with Deadline("GET /", patient(5)):
            return await connection.body(await connection.send("GET", "/", {}))
    finally:
        connection.close()


async def asked_without_loop(port: int) -> bytes:
    return await asyncio.to_thread(unlooped.run, asked(port))


WAYS = pytest.mark.parametrize("ask", [asked, asked_without_loop])


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
GOOD = {
    "a length": OK + b"Content-Length: 5\r\n\r\nhello",
    "chunks": OK + CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: 1\r\n\r\n",
    "until the end": OK + b"\r\nhello",
    "an interim answer first": INTERIM + OK + b"Content-Length:5\r\n\r\nhello",
    "gzip": OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello"),
}
BAD = {
    "no HTTP": (b"220 smtp.example ready\r\n\r\n", "no HTTP"),
    "another protocol": (b"HTTP/2 200\r\n\r\n", "no HTTP"),
    "nothing": (b"", "the connection ended"),
    "half a head": (OK + b"content-length: 5\r\n", "the connection ended"),
    "half a body": (OK + b"content-length: 5\r\n\r\nhe", "broke off"),
    "half a chunk": (OK + CHUNKED + b"5\r\nhe", "broke off"),
    "no last chunk": (OK + CHUNKED + b"5\r\nhello\r\n", "broke off"),
    "a negative length": (OK + b"content-length: -5\r\n\r\nhello", "is no length"),
    "a chunk of no length": (OK + CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", "is no length"),
    "an endless head": (OK + b"x: y\r\n" * 20_000, "longer than"),
    "no gzip": (OK + b"content-encoding: gzip\r\n\r\nhello", "no gzip"),
    "half a gzip": (
        OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello")[:-9],
        "middle of its gzip",
    ),
    "an unknown packing": (OK + b"content-encoding: br\r\n\r\nhello", "not asked for"),
}


@pytest.mark.asyncio
@WAYS
@pytest.mark.parametrize("name", GOOD)
async def test_a_body_is_read_however_it_comes(name: str, ask: Ask) -> None:
    async with server(says(GOOD[name])) as port:
        assert await ask(port) == b"hello"


@pytest.mark.asyncio
@WAYS
@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_is_named(name: str, ask: Ask) -> None:
    answer, named = BAD[name]
    async with server(says(answer)) as port:
        with pytest.raises(Unreachable, match=named):
            await ask(port)


@pytest.mark.asyncio
async def test_a_body_has_a_limit_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BODY_LIMIT", 1000)
    packed = OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(bytes(1_000_000))
    for answer in (packed, OK + b"\r\n" + bytes(2000)):
        async with server(says(answer)) as port:
            with pytest.raises(Unreachable, match="longer than 1000 bytes"):
                await asked(port)


@pytest.mark.asyncio
async def test_nobody_there() -> None:
    async with server(says()) as port:
        pass
    with pytest.raises(Unreachable, match=r"no connection: .*refused"):
        await asked(port)


# -- the client over it ------------------------------------------------------------------------


def client(port: int, **options: Any) -> Client:
    return Client(lambda: Access(f"http://127.0.0.1:{port}/base"), **options)


def body(text: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(text), more, text)


@pytest.mark.asyncio
@pytest.mark.parametrize("server", ["https://:6443", f"http://{'a' * 64}.example"])
async def test_a_name_that_cannot_be_one_is_unreachable(server: str) -> None:
    with pytest.raises(Unreachable, match=r"GET /.*no connection"):
        await Client(lambda: Access(server)).request("GET", "/")


@pytest.mark.asyncio
async def test_a_connection_is_used_again_and_a_closed_one_made_anew() -> None:
    heard: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(body(b"{}"))
        # The third request comes on a connection that is closed as it comes.
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with server(serve) as port:
        one = client(port)
        for _ in range(4):
            await one.request("GET", "/api/v1/secrets", {"limit": "1"})
        await one.close()
    assert connections == 2
    assert heard[0].startswith(b"GET /base/api/v1/secrets?limit=1 HTTP/1.1\r\n")


@pytest.mark.asyncio
async def test_a_write_is_never_sent_twice() -> None:
    heard = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body(b"{}"))
        await reader.readuntil(b"\r\n\r\n")
        heard += 1
        writer.close()

    async with server(serve) as port:
        one = client(port)
        await one.request("GET", "/x")
        with pytest.raises(Unreachable, match="POST /x"):
            await one.request("POST", "/x", body=b"{}")
        await one.close()
    assert heard == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "kind", "after"),
    [(b"410 Gone", Gone, 0), (b"429 Busy", Busy, 7), (b"401 No", Unauthorized, 0),
     (b"500 Oh", ApiError, 0)],
)  # fmt: skip
async def test_errors_have_their_name(status: bytes, kind: type[ApiError], after: float) -> None:
    text = b'{"kind":"Status","message":"too old","reason":"Expired"}'
    async with server(says(body(text, status, b"retry-after: 7\r\n" if after else b""))) as port:
        with pytest.raises(kind, match=r"GET /x: [0-9]{3} too old") as caught:
            await client(port).request("GET", "/x")
    assert type(caught.value) is kind
    assert (caught.value.reason, caught.value.retry_after) == ("Expired", after)


@pytest.mark.asyncio
async def test_an_error_that_is_no_status_is_told_as_it_is() -> None:
    async with server(says(body(b"upstream is <b>away</b>", b"502 Bad"))) as port:
        with pytest.raises(ApiError, match="502 upstream is <b>away</b>"):
            await client(port).request("GET", "/x")


@pytest.mark.asyncio
async def test_silence_ends_a_request_and_a_watch() -> None:
    async with server(says(b"", end=False)) as port:
        with pytest.raises(Unreachable, match=r"GET /x: no answer within 0.1 s"):
            await client(port, timeout=0.1).request("GET", "/x")
    head = OK + CHUNKED
    async with server(says(head, end=False)) as port:
        watch = client(port, silence=0.1).watch(SECRETS, "5")
        assert (await anext(watch)).name is None
        with pytest.raises(Unreachable, match=r"nothing was heard for 0.1 s"):
            await anext(watch)


@pytest.mark.asyncio
async def test_events_come_in_whatever_pieces() -> None:
    big = b"x" * 300_000
    lines = [
        b'{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n","resourceVersion":"6"},'
        b'"data":{"k":"aGk="}}}\n',
        b'{"type":"MODIFIED","object":{"metadata":{"name":"b","namespace":"n",'
        b'"resourceVersion":"7","annotations":{"big":"%s"}}}}\n' % big,
        b'{"type":"MODIFIED","object":{"metadata":{"name":"c","namespace":"n",'
        b'"resourceVersion":"8"},"data":5}}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n',
        b'{"type":"DELETED","object":{"metadata":{"name":"a","namespace":"n",'
        b'"resourceVersion":"10"}}}\n',
        b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n',
    ]
    answer = OK + CHUNKED
    text = b"".join(lines)
    for at in range(0, len(text), 1000):
        piece = text[at : at + 1000]
        answer += b"%x\r\n%s\r\n" % (len(piece), piece)
    async with server(says(answer + b"0\r\n\r\n")) as port:
        watch = client(port).watch(SECRETS, "5", Query("n"))
        events = [await anext(watch) for _ in range(6)]
        with pytest.raises(Gone, match="too old"):
            await anext(watch)
    first, added, modified, wrong, bookmark, deleted = events
    assert (first.name, first.revision) == (None, "5")
    assert added.value is not None
    assert (added.name, added.value.data) == (Name("n", "a"), {"k": b"hi"})
    assert "hi" not in repr(added.value)
    assert modified.value is not None
    assert len((modified.value.metadata.annotations or {})["big"]) == len(big)
    assert wrong.value is None
    assert "data" in wrong.broken
    assert (bookmark.name, bookmark.revision) == (None, "9")
    assert (deleted.name, deleted.value, deleted.revision) == (Name("n", "a"), None, "10")


PACKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.kubernetes.protobuf;stream=watch\r\n"


async def frames(answer: bytes, end: bool = True, silence: float = HANG) -> list[bytes]:
    """The events of a watch whose answer is in frames; the first says that it stands."""
    found: list[bytes] = []
    async with server(says(answer, end=end)) as port:
        one = client(port, silence=silence)
        try:
            async for frame in one.lines("/x", "5", {}, accept=protobuf.ACCEPT):
                found.append(frame)
        except Unreachable as problem:
            found.append(str(problem).encode())
    return found


@pytest.mark.asyncio
async def test_frames_come_in_whatever_pieces() -> None:
    sent = [b"one", b"\n", b"x" * 70_000, b"{}"]
    text = b"".join(len(one).to_bytes(4, "big") + one for one in [*sent, b""])
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(piece), piece)
        for piece in (text[at : at + 1000] for at in range(0, len(text), 1000))
    )
    assert await frames(PACKED + CHUNKED + chunks + b"0\r\n\r\n") == [b"", *sent]
    lines = OK + b"content-length: 6\r\n\r\n{}\n{}\n"
    assert await frames(lines) == [b"", b"{}", b"{}"], "who has no protobuf sends lines"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\0\0\0\5four", "in the middle of a frame"),
        (b"\0\0", "in the middle of a frame"),
        (b"\xff\0\0\0x", "a frame is longer than"),
    ],
)
async def test_a_bad_frame_is_named(text: bytes, reason: str) -> None:
    found = await frames(PACKED + b"content-length: %d\r\n\r\n" % len(text) + text)
    assert len(found) == 2
    assert reason in found[1].decode()


@pytest.mark.asyncio
async def test_silence_ends_a_watch_in_frames() -> None:
    found = await frames(PACKED + CHUNKED + b"7\r\n\0\0\0\3one\r\n", end=False, silence=0.3)
    assert found[:2] == [b"", b"one"]
    assert "nothing was heard" in found[2].decode()


@pytest.mark.asyncio
async def test_an_error_in_protobuf_has_its_name() -> None:
    status = {"message": "too old", "reason": "Expired", "code": 410}
    answers = [body(packed(status, STATUS), b"410 Gone"), body(b"k8s\0\x0a\x05a", b"500 Oh")]
    async with server(says(*answers)) as port:
        one = client(port)
        with pytest.raises(Gone, match="410 too old"):
            await one.request("GET", "/x")
        with pytest.raises(ApiError, match="500"):
            await one.request("GET", "/x")


@pytest.mark.asyncio
async def test_one_object_that_cannot_be_read_does_not_stop_a_list() -> None:
    text = (
        b'{"metadata":{"resourceVersion":"3","continue":"more"},"items":['
        b'{"metadata":{"name":"good","namespace":"n","resourceVersion":"1"},"endpoints":null},'
        b'{"metadata":{"name":"bad","namespace":"n"},"endpoints":"all"}]}'
    )
    async with server(says(body(text))) as port:
        page = await client(port).page(ENDPOINT_SLICES)
    assert [one.name for one in page.items] == [Name("n", "good")]
    assert "endpoints" in page.broken[Name("n", "bad")]
    assert (page.revision, page.token) == ("3", "more")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer", [b"[]", b"\xff", b'{"metadata":{"resourceVersion":"\xff"}}', b""]
)
async def test_an_answer_of_somebody_else_is_named(answer: bytes) -> None:
    async with server(says(body(answer), body(answer, b"500 Oh"), body(answer))) as port:
        one = client(port)
        with pytest.raises(Unreachable, match="the list of secrets is none"):
            await one.page(SECRETS)
        with pytest.raises(ApiError, match="500"):
            await one.page(SECRETS)
        with pytest.raises(Unreachable, match="the answer is none of secrets"):
            await one.get(SECRETS, "x", "n")
        await one.close()
    async with server(says(OK + b"\r\n" + answer + b"x\n")) as port:
        watch = client(port).watch(SECRETS, "5")
        await anext(watch)
        with pytest.raises(Unreachable, match="an event is none"):
            await anext(watch)


@pytest.mark.asyncio
async def test_text_that_is_no_utf8_is_of_one_object_only() -> None:
    text = (
        b'{"metadata":{"resourceVersion":"3"},"items":['
        b'{"metadata":{"name":"bad","namespace":"n"},"addressType":"\xff"},'
        b'{"metadata":{"name":"good","namespace":"n"},"addressType":"IPv4"}]}'
    )
    async with server(says(body(text))) as port:
        page = await client(port).page(ENDPOINT_SLICES)
    assert [one.name.name for one in page.items] == ["good"]
    assert list(page.broken) == [Name("n", "bad")]
