"""What a connection that speaks TLS costs: as little to the API server as to etcd."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from libcalico.datastore.etcd.http2 import SETTINGS, Peer, Sending, Wire, frame
from libcalico.kubernetes.wire import Connection
from libcalico.process import tls_space
from tests.support.certificates import Authority

CONNECTIONS = 8
Open = Callable[[int, ssl.SSLContext], Awaitable[object]]


async def _to_api(port: int, context: ssl.SSLContext) -> object:
    return await Connection.open("127.0.0.1", port, context)


async def _to_etcd(port: int, context: ssl.SSLContext) -> object:
    wire: Wire[Sending] = Wire()
    assert await Peer("127.0.0.1", port, context).reach(wire) == ""
    return wire


@pytest.mark.parametrize("opening", [_to_api, _to_etcd])
@pytest.mark.asyncio
async def test_the_space_to_receive_in_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: Open
) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 1 << 18)
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.cert, pair.key)
    context = ssl.create_default_context(cafile=str(authority.cert))
    for end in (serving, context):
        end.set_alpn_protocols(["h2"])
    held: list[object] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(reader)
        writer.write(frame(SETTINGS, 0, 0, b""))  # as etcd begins

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    held.append(await opening(port, context))
    tracemalloc.start()
    try:
        for _ in range(CONNECTIONS):
            held.append(await opening(port, context))
        mine = tracemalloc.take_snapshot().filter_traces([_of_asyncio()]).statistics("filename")
    finally:
        tracemalloc.stop()
        server.close()
    # Both ends are in this process.
    assert mine[0].size < 2 * CONNECTIONS * 2 * tls_space.OCTETS, mine


def _of_asyncio() -> tracemalloc.Filter:
    return tracemalloc.Filter(True, sslproto.__file__)
