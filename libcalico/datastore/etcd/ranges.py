"""Which part of a large range to ask for next: etcd counts all that a request spans.

A request with a limit returns few keys, but etcd walks the whole range to tell how many there are
(`count`): a quarter of a million keys in pages that all reach to the end cost etcd seconds. So
each request ends at the end of a prefix of the key where it begins: a longer one when the last
answer counted too many, a shorter one when it counted too few. The parts are disjoint and
together the whole.

Pure. Tested in tests/libcalico/test_etcd_ranges.py.
"""

from __future__ import annotations

from typing import Protocol

MANY = 16
"""A part of more pages is cut shorter."""
FEW = 4
"""A part of less than a page divided by this was too short."""


class Keys(Protocol):
    """The keys of an answer; few of them are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> bytes: ...


class Parts:
    """The requests for [`first`, `end`), of `page` keys at most: ask for `span`, then `answer`."""

    def __init__(self, first: bytes, end: bytes, page: int) -> None:
        self._start, self._end, self._page = first, end, page
        self._shortest = self._length = len(first)
        self._proved = 0
        self._bound = end

    @property
    def span(self) -> tuple[bytes, bytes]:
        """First key and end of the next request."""
        return self._start, self._bound

    def answer(self, keys: Keys, count: int, *, more: bool) -> bool:
        """Note the answer to `span`; returns whether to go on.

        `count` is how many keys `span` holds.
        """
        if more:
            last = keys[-1]
            self._start = last + b"\0"
            if count - len(keys) > MANY * self._page:
                self._shorten(keys)
                self._bound = min(self._bound, _after(last, self._length))
            elif self._length > self._shortest:
                self._proved = self._length
            return True
        if self._bound >= self._end:
            return False
        if count >= self._page // FEW:
            self._proved = self._length
        elif not count and self._shortest < self._proved < self._length:
            self._length = self._proved
        else:
            self._length = max(self._shortest, self._length - 1)
        self._start = self._bound
        # At the shortest length all the rest is one part.
        rest = self._length <= self._shortest
        self._bound = self._end if rest else min(self._end, _after(self._start, self._length))
        return True

    def _shorten(self, keys: Keys) -> None:
        """Let the next part end with a longer prefix: the last that fitted, or half a page's."""
        if self._proved > self._length:
            self._length = self._proved
        else:
            self._length = max(self._length + 1, _shared(keys[len(keys) // 2], keys[-1]))


def _shared(one: bytes, other: bytes) -> int:
    """The length of the common beginning of two keys."""
    length = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        length += 1
    return length


def _after(key: bytes, length: int) -> bytes:
    """The end of the range of all keys that share the first `length` bytes of `key`."""
    start = key[:length].rstrip(b"\xff")
    return start[:-1] + bytes([start[-1] + 1])
