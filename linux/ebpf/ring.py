"""A BPF ring buffer: what programs put in, read by this process over shared memory.

Source: https://docs.kernel.org/bpf/ringbuf.html. A record has a header of eight bytes: its length,
with a bit for "not finished yet" and one for "thrown away".
Tested in tests/linux/test_ebpf.py.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

from linux.closing import Closing
from linux.ebpf import calls

_BUSY, _DISCARD = 1 << 31, 1 << 30
_U64 = struct.Struct("=Q")


class Ring(Closing):
    """A ring of `size` bytes, a power of two of pages. Raises `KernelError`."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._size = size
        self.fd = calls.create_map(calls.MAP_RINGBUF, 0, 0, size)
        self._consumer = mmap.mmap(self.fd, page)
        self._rest = mmap.mmap(
            self.fd, page + 2 * size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED, offset=page
        )
        self._data = page

    def read(self) -> Iterator[bytes]:
        """The records that wait, each once, in the order in which they were begun."""
        (at,) = _U64.unpack_from(self._consumer)
        while at < _U64.unpack_from(self._rest)[0]:
            place = self._data + (at & (self._size - 1))
            (head,) = struct.unpack_from("=I", self._rest, place)
            if head & _BUSY:
                return
            length = head & ~(_BUSY | _DISCARD)
            record = bytes(self._rest[place + 8 : place + 8 + length])
            at += (length + 8 + 7) & ~7
            _U64.pack_into(self._consumer, 0, at)
            if not head & _DISCARD:
                yield record

    def close(self) -> None:
        """Give the memory back."""
        if self.fd >= 0:
            self._consumer.close()
            self._rest.close()
            os.close(self.fd)
            self.fd = -1
