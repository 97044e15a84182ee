"""The space in which asyncio receives what is encrypted: 256 KiB a connection, written at once.

A node's programs hold dozens of connections to the API server, one for each watch: felix had 9 MiB
of such space. Two records of TLS (16 KiB each at most, RFC 8446 section 5.1) are enough. 200 MB at
once then take 0.32 s of CPU instead of 0.56: each read makes a piece of this size and shortens it.

Tested in tests/libcalico/test_tls_space.py.
"""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

OCTETS = 32 << 10


def small() -> None:
    """For every connection of this process that is opened from now on."""
    SSLProtocol.max_size = OCTETS
