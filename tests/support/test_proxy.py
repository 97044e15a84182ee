"""The forwarder that tests cut: it holds what has a marker in it, however the bytes come."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.patience import until
from tests.support.proxy import Proxy


@pytest.mark.asyncio
async def test_a_marker_that_comes_in_two_pieces_is_held() -> None:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            got.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = await Proxy(server.sockets[0].getsockname()[1]).start()
    _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(b"before it: marker, and ma")
        await until(lambda: got.endswith(b"ma"))
        held = proxy.hold(b"marker")
        for piece in (b"rker is no more than a half; but mark", b"er is one"):
            writer.write(piece)
            await until(lambda piece=piece: got.endswith(piece) or held.is_set())  # type: ignore[misc]
        assert held.is_set()
        assert got.endswith(b"but mark"), "the end of it is held"
        proxy.mend()
        await until(lambda: got.endswith(b"er is one"))
    finally:
        writer.close()
        await proxy.stop()
        server.close()
