"""Try a TCP connection to a peer, without its password, and reset it.

Tested in tests/bgp/test_probing.py with real refusals.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import struct

from bgp.sessions.evidence import Probe, Reached
from bgp.speaker.interface import Peer
from libcalico.process.waiting import set_within

TIMEOUT = 4.0
"""Longer than the kernel asks for a neighbour's address (3 s) before it says there is none."""

OTHER_PORT = 9
"""Discard: a port that hosts do not serve, so that they refuse."""

_NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES}


async def probe(peer: Peer, timeout: float = TIMEOUT) -> Probe:
    """Try a TCP connection to the peer's port, and reset it."""
    reached = await _dial(peer, peer.port, timeout)
    if reached is Reached.SILENT:
        other = await _dial(peer, OTHER_PORT, timeout / 2)
        return Probe(reached, host_answers=other in (Reached.REFUSED, Reached.CONNECTED))
    return Probe(reached)


async def _dial(peer: Peer, port: int, timeout: float) -> Reached:
    family = socket.AF_INET if peer.address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as dialling:
        dialling.setblocking(False)
        dialling.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            if not peer.any_source:
                dialling.bind((str(peer.local_address), 0))
        except OSError as error:
            return _outcome(error.errno)
        begun = dialling.connect_ex((str(peer.address), port))
        if begun != errno.EINPROGRESS:
            return _outcome(begun)
        await _ready(dialling, timeout)
        # What the kernel has heard counts, though this process stood still until now.
        return _outcome(_answer(dialling))


async def _ready(dialling: socket.socket, timeout: float) -> None:
    """Until a connection stands or failed, or the time is over. Its error stays to be read: the
    loop's own `sock_connect` takes it, and may be cancelled before it tells it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(dialling, ready.set)
    try:
        await set_within(ready, timeout)
    finally:
        loop.remove_writer(dialling)


def _answer(dialling: socket.socket) -> int | None:
    """The result of a connection: 0 if it stands, an errno, None while there is none."""
    ready = select.poll()
    ready.register(dialling, select.POLLOUT)
    return dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ready.poll(0) else None


def _outcome(number: int | None) -> Reached:
    if number == 0:
        return Reached.CONNECTED
    if number in (errno.ECONNREFUSED, errno.ECONNRESET):
        return Reached.REFUSED
    if number == errno.EADDRNOTAVAIL:
        return Reached.NO_ADDRESS
    return Reached.NO_ROUTE if number in _NO_ROUTE else Reached.SILENT
