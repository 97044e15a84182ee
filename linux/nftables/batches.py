"""Requests in an order, where they may be cut into batches, and what each is about.

Tested in tests/linux/test_nftables_plan.py.
"""

from __future__ import annotations

import itertools

from linux.errors import KernelError
from linux.nftables.connection import Refused
from linux.nftables.expressions import Family

# The headers around a batch, and what rounding to four bytes may add.
_AROUND = 256


class Batches:
    """`requests` in order, and of each what it is about (`names`).

    `splits`: requests before which a batch ends, and whether packets must have left its rules
    first.
    """

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.names: list[str] = []
        self.splits: dict[int, bool] = {}
        self._rules_of: list[tuple[Family, str] | None] = []
        self._cuts: list[int] = []

    def parts(self, room: int) -> list[tuple[int, int]]:
        """First and end of each batch: one, if all fits into so many bytes and nothing waits."""
        batches: list[tuple[int, int]] = []
        start = size = 0
        for first, end in itertools.pairwise([0, *self._cuts]):
            length = sum(len(request) + 3 for request in self.requests[first:end])
            if size and (first in self.splits or size + length + _AROUND > room):
                batches.append((start, first))
                start, size = first, 0
            size += length
        return [*batches, (start, len(self.requests))]

    def blamed(self, error: KernelError) -> dict[tuple[Family, str], int]:
        """The chains whose rules were refused, and the errno."""
        refused: dict[tuple[Family, str], int] = {}
        for place, code in error.faults if isinstance(error, Refused) else ():
            chain = self._rules_of[place] if 0 <= place < len(self._rules_of) else None
            if chain is not None:
                refused.setdefault(chain, code)
        return refused

    def add(self, about: str, *requests: bytes, rules_of: tuple[Family, str] | None = None) -> None:
        """Requests about one object; `rules_of`: the chain whose rules they write."""
        self.requests += requests
        self.names += [about] * len(requests)
        self._rules_of += [rules_of] * len(requests)

    def cut(self) -> None:
        """A batch may end here."""
        self._cuts.append(len(self.requests))

    def split(self, *, wait: bool) -> None:
        """A batch ends here; `wait`: until packets have left its rules."""
        self.cut()
        self.splits[len(self.requests)] = wait
