"""Dense ids, and sorted lists of them in little room.

Most lists have one entry for ever (the label sets that have a pod's name as a label), a few
have hundreds of thousands. So a list is nothing, a bare id, or an array of four bytes an id:
a set would take ten times as much. New ids are mostly the largest, so adding is appending.
Tested in tests/felix/calc/policy/test_population.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

IdList = int | array | None  # type: ignore[type-arg]


def with_id(ids: IdList, one: int) -> IdList:
    """The list with an id that it did not have."""
    if isinstance(ids, array):
        if not ids or one > ids[-1]:
            ids.append(one)
        else:
            ids.insert(bisect_left(ids, one), one)
        return ids
    if ids is None:
        return one
    return array("I", (ids, one) if ids < one else (one, ids))


def without_id(ids: IdList, one: int) -> IdList:
    """The list without an id that it had."""
    if ids is None or isinstance(ids, int):
        return None
    del ids[bisect_left(ids, one)]
    return ids if len(ids) > 1 else ids[0]


def each(ids: IdList) -> Sequence[int]:
    """The ids; not to be kept over a change."""
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else ids


def length(ids: IdList) -> int:
    """How many ids."""
    if ids is None:
        return 0
    return 1 if isinstance(ids, int) else len(ids)


_NUMBERS: list[int] = []
"""The numbers from 0 on: where many columns have the same id, it is one object for all."""


class Allocator:
    """Hands out the smallest numbers that were never used, and used ones again."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self.used = 0

    def allocate(self) -> int:
        """An id that is free."""
        if self._free:
            return _NUMBERS[self._free.pop()]
        one = self.used
        if one == len(_NUMBERS):
            _NUMBERS.append(one)
        self.used = one + 1
        return _NUMBERS[one]

    def free(self, one: int) -> None:
        """The id may be allocated again."""
        self._free.append(one)

    def __len__(self) -> int:
        return self.used - len(self._free)
