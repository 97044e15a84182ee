"""The socket to nf_tables: batches that happen whole or not at all, and dumps.

Problem: the kernel takes a batch from one datagram only, applies it under one lock and reports
each refused message; it never acknowledges the end. So a batch is one send, its last real message
asks for the answer, and the first refusal is the error.

NFC-1: after `commit` raised, the kernel has nothing of the batch.
Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Iterator, Sequence

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.answers import read_error
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.nftables import messages
from linux.nftables.expressions import Family, TableFamily

_SO_SNDBUFFORCE = 32
_MOST = 256 << 20


class Refused(KernelError):
    """The kernel took nothing of a batch; `faults`: place and errno of each request it refused."""

    def __init__(
        self, errno: int, what: str, detail: str = "", faults: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__(errno, what, detail)
        self.faults = tuple(faults)

    def moved(self, places: int) -> Refused:
        """The same error of a batch that is a part: its requests stand so many places on."""
        faults = [(place + places, code) for place, code in self.faults]
        return Refused(self.errno, self.what, self.detail, faults)


class Connection(Socket):
    """A blocking connection to the rules of the current network namespace."""

    def __init__(self, *, groups: Sequence[int] = (), timeout: float = 30.0) -> None:
        super().__init__(family=NETLINK_NETFILTER, groups=groups, timeout=timeout)
        # As much as there is: the kernel takes no batch in pieces. The second needs no rights.
        for option in (_SO_SNDBUFFORCE, socket.SO_SNDBUF):
            if self.room < _MOST:
                self._option(socket.SOL_SOCKET, option, _MOST)

    @property
    def room(self) -> int:
        """How many bytes a batch may have."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) - 64

    def available(self) -> bool:
        """Whether this kernel has nf_tables, and we may look."""
        request = messages.request(messages.GETGEN, 0, None, b"")
        return self.transact([request])[0].ok

    def commit(
        self, requests: Sequence[bytes], names: Sequence[str] = (), *, trial: bool = False
    ) -> None:
        """All of these or none. `names` says what each is about. Raises `Refused`.

        `trial`: only ask whether the kernel would take them.
        """
        if not requests:
            return
        # A batch without an end is looked at and given up.
        everything = (messages.begin(), *requests, *(() if trial else (messages.end(),)))
        base = self._send_batch(everything, acknowledged=len(requests))
        faults: list[tuple[int, int]] = []
        first = ""
        done = False
        while not done:
            for kind, _, sequence, body in self._messages("answer to a batch of rules"):
                place = (sequence - base) & 0xFFFFFFFF
                if place >= len(everything) or kind != m.NLMSG_ERROR:
                    continue
                code, detail = read_error(body)
                if code:
                    first = first or detail
                    faults.append((place - 1, code))
                # A batch that is refused as a whole answers its first message alone.
                done = done or place == len(requests) or (place == 0 and code != 0)
        if faults:
            where, code = faults[0]
            about = names[where] if 0 <= where < len(names) else "change nftables"
            raise Refused(code, about, first, faults)

    def table_flags(self, family: TableFamily, table: str) -> int | None:
        """The flags of a table; None if there is none."""
        body = m.text(messages.TABLE_NAME, table)
        result = self.transact([messages.request(messages.GETTABLE, 0, family, body)])[0]
        if result.errno == errno.ENOENT:
            return None
        result.check(f"look up table {table}")
        attributes = m.parse_attributes(result.answers[0][1], 4)
        return int.from_bytes(attributes.get(messages.TABLE_FLAGS, bytes(4)), "big")

    def has_chains(self, family: Family, table: str) -> bool:
        """Whether a table holds any chain."""
        return bool(self.objects(messages.GETCHAIN, family, table))

    def objects(self, kind: int, family: Family, table: str) -> list[m.Attributes]:
        """All chains, rules or sets of a table. Raises `KernelError`."""
        name = table.encode() + b"\0"
        listed = self._list(kind, family, m.text(1, table), f"list table {table}")
        return [attributes for attributes in listed if attributes.get(1) == name]

    def rules(self, family: Family, table: str, chain: str) -> list[m.Attributes]:
        """The rules of one chain; none where it does not exist."""
        place, name = messages.chain_place(table, chain), chain.encode() + b"\0"
        listed = self._list(messages.GETRULE, family, place, f"list {chain}")
        return [each for each in listed if each.get(messages.RULE_CHAIN) == name]

    def elements(self, family: Family, table: str, name: str) -> list[m.Attributes]:
        """The elements of a set or map. Raises `KernelError` (ENOENT)."""
        body = m.text(1, table) + m.text(messages.ELEMENTS_SET, name)
        return [
            m.parse_attributes(data)
            for part in self._list(messages.GETSETELEM, family, body, f"list set {name}")
            for _, data in m.iterate_attributes(part.get(messages.ELEMENTS, b""))
        ]

    def _list(self, kind: int, family: Family, body: bytes, what: str) -> Iterator[m.Attributes]:
        answers = self.dump(messages.request(kind, 0, family, body), what)
        return (m.parse_attributes(answer, 4) for _, answer in answers)


async def to_its_end(work: Awaitable[None]) -> None:
    """Wait for work of a thread, even when cancelled: it has the connection until it is done."""
    running, cancelled = asyncio.ensure_future(work), False
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised below
            break
    if cancelled:
        running.exception()
        raise asyncio.CancelledError
    running.result()
