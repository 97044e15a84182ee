"""A TCP connection to the API server, or to the proxy before it.

Tested in tests/libcalico/test_kubernetes_wire.py and test_kubernetes_tunnel.py there.
"""

from __future__ import annotations

import asyncio
import socket

from libcalico.kubernetes.errors import Unreachable

CONNECT_SECONDS = 3.0
"""A first packet that is lost is sent again after 1, 3, 7 and 15 s: a new attempt comes sooner."""

# After 9 s the kernel gives up a peer that is gone without a word (tcp(7)): it probes after 5 and
# 7 s, and at the third look the silence is longer than TCP_USER_TIMEOUT, in ms.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 2}

_UNACKNOWLEDGED = 8_000


async def connected(host: str, port: int) -> socket.socket:
    """A connection to the first address that accepts one. Raises OSError, ValueError.

    Without TLS: a busy server may take longer for that. ValueError is for a bad name.
    """
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in addresses:
                plain = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
                try:
                    plain.setblocking(False)
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for option, value in _KEEPALIVE.items():
                        plain.setsockopt(socket.IPPROTO_TCP, option, value)
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
                    await loop.sock_connect(plain, address)
                    return plain
                except OSError as error:
                    plain.close()
                    problem = problem or error
                except BaseException:
                    plain.close()
                    raise
    except TimeoutError:
        raise Unreachable(f"no connection within {CONNECT_SECONDS:g} s") from None
    raise problem or OSError(f"{host} has no address")
