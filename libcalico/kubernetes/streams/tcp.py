"""A TCP connection to the API server, or to the proxy before it.

Tested in tests/libcalico/test_kubernetes_wire.py and test_kubernetes_tunnel.py there.
"""

from __future__ import annotations

import socket

CONNECT_SECONDS = 3.0
"""A first packet that is lost is sent again after 1, 3, 7 and 15 s: a new attempt comes sooner."""

# After 9 s the kernel gives up a peer that is gone without a word (tcp(7)): it probes after 5 and
# 7 s, and at the third look the silence is longer than TCP_USER_TIMEOUT, in ms.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 2}

_UNACKNOWLEDGED = 8_000


LATE = f"no connection within {CONNECT_SECONDS:g} s"


def prepared(family: int, kind: int, protocol: int) -> socket.socket:
    """A socket that notices a peer which is gone. Raises OSError."""
    made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            made.setsockopt(socket.IPPROTO_TCP, option, value)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
    except BaseException:
        made.close()
        raise
    return made
