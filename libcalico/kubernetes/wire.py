"""HTTP/1.1 as a client speaks it, over one connection (RFC 9112).

Only what an API server needs: a request with a body of known length, an answer whose body has a
length, comes in chunks or ends with the connection, and may be gzip. A body is read in pieces,
so that a watch can last; everything that the other side chooses has a limit.
Tested in tests/libcalico/test_kubernetes_wire.py, against servers that answer badly.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass

from libcalico.identity import reason_of
from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.streams import tunnel
from libcalico.kubernetes.streams.chosen import way
from libcalico.kubernetes.streams.stream import HEAD_LIMIT, Stream, TooLong
from libcalico.parsing import Proxy

BODY_LIMIT = 512 * 1024 * 1024
LINE_LIMIT = 64 * 1024 * 1024
PIECE = 256 * 1024
FRAME_HEAD = 4
"""Bytes of the length before a frame."""
_NO_BODY = (204, 304)


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def lasting(self) -> bool:
        """Whether the connection can be used again once the body has been read."""
        has_end = "content-length" in self.headers or self.chunked
        return has_end and self.headers.get("connection", "").lower() != "close"

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.headers.get("transfer-encoding", "").lower()


class Connection:
    """One connection; one request at a time. Methods raise Unreachable."""

    def __init__(self, stream: Stream, host: str) -> None:
        self._stream, self._host = stream, host
        self.lasting = True

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        server_name: str = "",
        through: Proxy | None = None,
    ) -> Connection:
        """Connect, with TLS where there is a context, `through` a proxy if any."""
        taken = way()
        try:
            if through is not None:
                plain = await tunnel.through(through, host, port, taken)
            else:
                plain = await taken.connected(host, port)
            stream = await taken.opened(plain, tls, server_name or host)
        except ssl.SSLCertVerificationError as problem:
            reason = problem.verify_message or str(problem)
            raise Unreachable(f"the server's certificate is not trusted: {reason}") from None
        except ssl.SSLError as problem:
            raise Unreachable(f"TLS: {reason_of(problem)}") from None
        except OSError as problem:
            raise Unreachable(f"no connection: {_said(problem)}") from None
        except ValueError as problem:  # the name is empty, or a label of it is too long
            raise Unreachable(f"no connection to {host!r}: {problem}") from None
        return cls(stream, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self.lasting and self._stream.usable

    def close(self) -> None:
        """Close it at once."""
        self.lasting = False
        self._stream.abort()

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        more: Iterable[tuple[str, str]] = (),
    ) -> Head:
        """Send one request and read the head of its answer. `more`: headers that may repeat."""
        lines = [f"{method} {target} HTTP/1.1", f"host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in (*headers.items(), *more)]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(body)}")
        with _named("the request could not be sent"):
            await self._stream.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        while True:
            head = await self._head()
            if head.status >= 200:
                self.lasting = head.lasting or head.status in _NO_BODY
                return head

    async def _head(self) -> Head:
        with _named("no answer"):
            raw = await self._stream.readuntil(b"\r\n\r\n")
        first, *rest = raw.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise Unreachable(f"the answer is no HTTP: {first[:60]!r}")
        headers: dict[str, str] = {}
        for line in filter(None, rest):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return Head(int(status[:3]), headers)

    async def body(self, head: Head) -> bytes:
        """The whole body, unpacked."""
        unpack = _unpacker(head)
        parts, size = [], 0
        async for piece in self.pieces(head):
            parts.append(_unpacked(unpack, piece, BODY_LIMIT - size) if unpack else piece)
            size += len(parts[-1])
            if size > BODY_LIMIT:
                raise Unreachable(f"the answer is longer than {BODY_LIMIT} bytes")
        if unpack is not None and not unpack.eof:
            raise Unreachable("the answer ends in the middle of its gzip stream")
        return b"".join(parts)

    async def lines(self, head: Head, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of a body, to its end; Unreachable after `silence` seconds without one."""
        buffer = bytearray()
        searched = 0
        async for piece in self._prompt_pieces(head, silence):
            buffer += piece
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                if line:
                    yield line
            searched = len(buffer)
            if searched > LINE_LIMIT:
                raise Unreachable(f"a line is longer than {LINE_LIMIT} bytes")

    async def frames(self, head: Head, silence: float) -> AsyncGenerator[bytes, None]:
        """Frames of a body, each behind its length in four bytes; otherwise as `lines`."""
        buffer = bytearray()
        async for piece in self._prompt_pieces(head, silence):
            buffer += piece
            while len(buffer) >= FRAME_HEAD:
                size = int.from_bytes(buffer[:FRAME_HEAD], "big")
                if size > LINE_LIMIT:
                    raise Unreachable(f"a frame is longer than {LINE_LIMIT} bytes")
                if len(buffer) < FRAME_HEAD + size:
                    break
                frame = bytes(buffer[FRAME_HEAD : FRAME_HEAD + size])
                del buffer[: FRAME_HEAD + size]
                if frame:
                    yield frame
        if buffer:
            raise Unreachable("the answer ends in the middle of a frame")

    async def _prompt_pieces(self, head: Head, silence: float) -> AsyncGenerator[bytes, None]:
        """The body in pieces; Unreachable after `silence` seconds without one."""
        import asyncio  # a watch has a loop

        pieces = self.pieces(head)
        while True:
            try:
                async with asyncio.timeout(silence):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Unreachable(f"nothing was heard for {silence:.3g} s") from None
            yield piece

    async def pieces(self, head: Head) -> AsyncGenerator[bytes, None]:
        """The body in pieces as they come."""
        if head.status in _NO_BODY:
            return
        with _named("the answer broke off"):
            if head.chunked:
                async for piece in self._chunks():
                    yield piece
            elif "content-length" in head.headers:
                async for piece in self._exactly(_number(head.headers["content-length"], 10)):
                    yield piece
            else:
                while piece := await self._stream.read(PIECE):
                    yield piece

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        while size := _number((await self._line()).partition(b";")[0].decode("latin-1"), 16):
            async for piece in self._exactly(size):
                yield piece
            await self._line()
        while await self._line():
            pass

    async def _line(self) -> bytes:
        return (await self._stream.readuntil(b"\r\n"))[:-2]

    async def _exactly(self, size: int) -> AsyncGenerator[bytes, None]:
        while size:
            piece = await self._stream.read(min(size, PIECE))
            if not piece:
                raise Unreachable("the answer broke off: the connection ended")
            size -= len(piece)
            yield piece


def _number(text: str, base: int) -> int:
    # int() takes signs, prefixes and underscores as well; lengths are digits alone.
    digits = text.strip().lower()
    if not digits or len(digits) > 15 or not set(digits) <= set("0123456789abcdef"[:base]):
        raise Unreachable(f"the answer is no HTTP: {text[:20]!r} is no length")
    return int(digits, base)


def _unpacker(head: Head) -> zlib._Decompress | None:
    coding = head.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        return None
    if coding != "gzip":
        raise Unreachable(f"the answer is packed as {coding!r}, which was not asked for")
    return zlib.decompressobj(wbits=31)


def _unpacked(unpack: zlib._Decompress, piece: bytes, most: int) -> bytes:
    try:
        return unpack.decompress(piece, max(most, 0) + 1)
    except zlib.error as problem:
        raise Unreachable(f"the answer is no gzip: {problem}") from None


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Raise the errors of a stream as Unreachable."""
    try:
        yield
    except EOFError:  # asyncio.IncompleteReadError, too
        raise Unreachable(f"{what}: the connection ended") from None
    except TooLong:
        raise Unreachable(f"{what}: its head is longer than {HEAD_LIMIT} bytes") from None
    except OSError as problem:
        raise Unreachable(f"{what}: {_said(problem)}") from None


def _said(problem: OSError) -> str:
    """The system's message; asyncio puts its own sentence in its place."""
    return os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
