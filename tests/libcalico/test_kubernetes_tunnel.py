"""Proxies that answer badly; tests/apiserver/test_kubeconfig.py has one that works."""

from __future__ import annotations

import asyncio

import pytest

from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.wire import Connection
from libcalico.parsing import proxy
from tests.support.etcd import free_ports

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "does not connect us: 407"),
        (b"SSH-2.0-x\r\n\r\n", "its answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "its answer is no HTTP"),
        (b"", "its answer is no HTTP"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_named(answer: bytes, named: str) -> None:
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable, match=f"the proxy 127.0.0.1:{port}: .*{named}") as caught:
        await Connection.open(
            "fd00::1", 443, None, "", proxy(f"http://me:s%40crt@127.0.0.1:{port}")
        )
    server.close()
    assert asked.startswith(b"CONNECT [fd00::1]:443 HTTP/1.1\r\nhost: [fd00::1]:443\r\n")
    assert b"proxy-authorization: Basic bWU6c0BjcnQ=\r\n" in asked
    assert "crt" not in str(caught.value)


async def test_a_proxy_that_is_not_there_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable, match=f"the proxy 127.0.0.1:{port}: no connection"):
        await Connection.open("api", 443, None, "", proxy(f"http://127.0.0.1:{port}"))
