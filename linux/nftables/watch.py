"""Reports at once when another program changes one of our tables.

Problem: a table is read back at intervals, and `nft flush ruleset`, which many start-up scripts
do, would leave a node without rules until then. The kernel reports every change and its sender.
A filter in the kernel drops our own writes, so they cost no wake-up and no room.

NFW-1: after a change of a table of this name by another socket, `changed` is called; also when
       messages were lost.
Tested in tests/linux/test_nftables_watch.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from linux.closing import Closing
from linux.netlink import wire as m
from linux.netlink.filters import not_caused_by
from linux.nftables import messages
from linux.nftables.connection import Connection

_GROUP = 7


class Watch(Closing):
    """Calls `changed` in the running event loop. `own`: ports of the sockets that are ours."""

    def __init__(self, table: str, own: Iterable[int], changed: Callable[[], None]) -> None:
        self._table = table.encode() + b"\0"
        self._changed = changed
        self._connection = Connection(groups=(_GROUP,))
        self._connection.setblocking(False)
        self._connection.attach_filter(not_caused_by(tuple(own)))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._connection.fileno(), self._read)

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._connection.fileno()

    def close(self) -> None:
        """Stops; twice is fine."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
        self._connection.close()

    def _read(self) -> None:
        concerned = False
        for received in self._connection.read_waiting():
            concerned = (
                concerned
                or received is None
                or any(
                    kind >> 8 == messages.SUBSYSTEM and self._is_ours(body)
                    for kind, _, _, body in received
                )
            )
        if concerned:
            self._changed()

    def _is_ours(self, body: bytes) -> bool:
        # Every message names its table first.
        for kind, value in m.iterate_attributes(body, 4):
            return kind == 1 and value == self._table
        return False
