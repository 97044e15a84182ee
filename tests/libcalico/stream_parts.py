"""What tests of the watches' own connection share: a line without a socket, bytes, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from libcalico.datastore.etcd import http2
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.stream import Line
from libcalico.datastore.interface import Batch, Datastore, Put
from libcalico.model import Handle, HandleKey
from tests.support.patience import HANG

SETTINGS = http2.frame(http2.SETTINGS, 0, 0, b"")
LIMIT = HANG


def message(body: bytes) -> bytes:
    """A message of gRPC."""
    return http2.message(body)


def data(body: bytes, number: int = 1, flags: int = 0) -> bytes:
    """A frame of a stream."""
    return http2.frame(http2.DATA, flags, number, body)


def line_of(store: Datastore) -> Line:
    """The connection of a store's watches, which must be its own."""
    assert isinstance(store, EtcdDatastore)
    links = store._connection._links
    assert links
    ways = [link.streams for link in links if link.streams and link.streams._line]
    assert len(ways) == 1
    line = ways[0]._line
    assert line is not None
    return line


async def stood(batches: AsyncIterator[Batch]) -> None:
    """The first batch says that the watch stands."""
    assert list(await anext(batches)) == []


async def told(batches: AsyncIterator[Batch], count: int) -> list[tuple[str, bool]]:
    """So many events."""
    found: list[tuple[str, bool]] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < count:
            found += [(str(one.key), one.entry is not None) for one in await anext(batches)]
    return found


@dataclass
class Wires(asyncio.Transport):
    """Remembers what is written and whether it may be read."""

    sent: bytearray = field(default_factory=bytearray)
    reading: bool = True
    pauses: int = 0
    aborted: bool = False

    def write(self, data: object) -> None:
        """Into `sent`."""
        assert isinstance(data, bytes)
        self.sent += data

    def abort(self) -> None:
        """Noted."""
        self.aborted = True

    def pause_reading(self) -> None:
        """Noted."""
        self.reading, self.pauses = False, self.pauses + 1

    def resume_reading(self) -> None:
        """Noted."""
        self.reading = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        """None."""
        return default


def made(gather: float = 0.0) -> tuple[Line, Wires]:
    """A line to a server that has said who it is."""
    line, wires = Line((30.0, 10.0), gather), Wires()
    line.connection_made(wires)
    line.data_received(SETTINGS)
    wires.sent.clear()
    return line, wires


def put(name: str) -> Put:
    """A change."""
    return Put(HandleKey(name), Handle({}))
