"""A connection through an HTTP proxy: the method CONNECT (RFC 9110, section 9.3.6).

Tested in tests/apiserver/test_kubeconfig.py, through a proxy, to a real API server, and in
tests/libcalico/test_kubernetes_tunnel.py.
"""

from __future__ import annotations

import base64
import socket

from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.streams.stream import Way
from libcalico.parsing import Proxy

_HEAD_LIMIT = 16 * 1024


async def through(proxy: Proxy, host: str, port: int, way: Way) -> socket.socket:
    """A connection to `host`, opened by the proxy. Raises Unreachable, OSError.

    `way` opens the connection to the proxy.
    """
    named = f"the proxy {proxy.host}:{proxy.port}"
    try:
        plain = await way.connected(proxy.host, proxy.port)
    except OSError as problem:
        raise Unreachable(f"{named}: no connection: {problem.strerror or problem}") from None
    except Unreachable as problem:
        raise Unreachable(f"{named}: {problem}") from None
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if proxy.credentials:
            word = base64.b64encode(proxy.credentials.encode()).decode()
            lines.append(f"proxy-authorization: Basic {word}")
        await way.send(plain, "\r\n".join([*lines, "", ""]).encode("latin-1"))
        _check(await _head(plain, way), named)
    except BaseException:
        plain.close()
        raise
    return plain


async def _head(plain: socket.socket, way: Way) -> bytes:
    """The answer's head. The server behind speaks after us, so nothing of it can follow."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _HEAD_LIMIT:
        piece = await way.receive(plain, _HEAD_LIMIT)
        if not piece:
            break
        head += piece
    return head


def _check(head: bytes, named: str) -> None:
    first = head.partition(b"\r\n")[0].decode("latin-1")
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1.") or not head.endswith(b"\r\n\r\n"):
        raise Unreachable(f"{named}: its answer is no HTTP")
    if not status.startswith("2"):
        raise Unreachable(f"{named}: it does not connect us: {status[:80]}")
