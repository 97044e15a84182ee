"""A set of networks as the kernel's interval sets take it: none of its ranges inside another.

Problem: ipset holds 10.0.0.0/8 and 10.1.0.0/16 side by side; an interval set refuses what
overlaps. A network that lies in another one adds nothing, so only those that lie in none are
sent; the others are remembered, and come forward when the one that covers them goes.

INT-1: after each change the kernel's ranges are exactly the members that lie in no other member.
INT-2: to add or take away a host costs as many look-ups as there are lengths of prefixes.
Tested in tests/linux/test_nftables_intervals.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from linux.nftables.expressions import Family

Range = tuple[int, int]
"""First and last address."""


class Intervals:
    """The members of one set, as ranges of addresses."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._bits = 32 if family == 4 else 128
        # Members by length of prefix; ranges that are no network stand alone.
        self._lengths: dict[int, set[int]] = {}
        self._odd: set[Range] = set()

    def __len__(self) -> int:
        return sum(map(len, self._lengths.values())) + len(self._odd)

    def add(self, members: Iterable[Range]) -> tuple[set[Range], set[Range]]:
        """(ranges that go, ranges that come) of the kernel's."""
        going: set[Range] = set()
        coming: set[Range] = set()
        # The wide ones first: what lies in them need not be sent to be taken back.
        for member in sorted(members, key=lambda each: each[0] - each[1]):
            length = self._length(member)
            if length is None:
                if member not in self._odd:
                    self._odd.add(member)
                    coming.add(member)
                continue
            there = self._lengths.setdefault(length, set())
            if member[0] in there:
                continue
            there.add(member[0])
            if self._covered(member[0], length):
                continue
            coming.add(member)
            for narrower in self._inside(member[0], length):
                if narrower in coming:
                    coming.remove(narrower)
                else:
                    going.add(narrower)
        return going, coming

    def remove(self, members: Iterable[Range]) -> tuple[set[Range], set[Range]]:
        """(ranges that go, ranges that come) of the kernel's."""
        going: set[Range] = set()
        coming: set[Range] = set()
        for member in members:
            length = self._length(member)
            if length is None:
                self._odd.discard(member)
                going.add(member)
                continue
            there = self._lengths.get(length, set())
            if member[0] not in there:
                continue
            there.remove(member[0])
            if not there:
                del self._lengths[length]
            if self._covered(member[0], length):
                continue
            if member in coming:
                coming.remove(member)
            else:
                going.add(member)
            coming |= self._inside(member[0], length)
        return going, coming

    def covered(self) -> set[Range]:
        """Members that lie in another one."""
        return {
            self._range(first, length)
            for length, firsts in self._lengths.items()
            for first in firsts
            if self._covered(first, length)
        }

    def _length(self, member: Range) -> int | None:
        size = member[1] - member[0] + 1
        if size & (size - 1) or member[0] % size:
            return None
        return self._bits - size.bit_length() + 1

    def _range(self, first: int, length: int) -> Range:
        return first, first + (1 << self._bits - length) - 1

    def _covered(self, first: int, length: int) -> bool:
        for wider, firsts in self._lengths.items():
            if wider < length and first >> self._bits - wider << self._bits - wider in firsts:
                return True
        return False

    def _inside(self, first: int, length: int) -> set[Range]:
        """The widest members that lie in a network."""
        last = first + (1 << self._bits - length) - 1
        widest: set[Range] = set()
        for narrower in sorted(n for n in self._lengths if n > length):
            starts = self._lengths[narrower]
            step = 1 << self._bits - narrower
            possible: Iterable[int] = range(first, last + 1, step)
            if (last + 1 - first) // step > len(starts):
                possible = starts
            for start in possible:
                if (
                    first <= start <= last
                    and start in starts
                    and not self._covered_within(start, narrower, length)
                ):
                    widest.add(self._range(start, narrower))
        return widest

    def _covered_within(self, first: int, length: int, above: int) -> bool:
        """Whether a member narrower than `above` covers this one."""
        return any(
            above < wider < length and first >> self._bits - wider << self._bits - wider in firsts
            for wider, firsts in self._lengths.items()
        )


def parse(member: str, family: Family) -> Range:
    """ "10.0.0.0/26", "10.0.0.1" or "10.0.0.1-10.0.0.5". Raises `ValueError`."""
    number, bits = (AF_INET, 32) if family == 4 else (AF_INET6, 128)
    text, dash, end = member.partition("-")
    address, slash, length = text.partition("/")
    try:
        first = int.from_bytes(inet_pton(number, address), "big")
        if dash:
            return first, int.from_bytes(inet_pton(number, end), "big")
        if not slash:
            return first, first
        size = 1 << bits - int(length)
    except (OSError, ValueError) as error:
        raise ValueError(f"{member!r} is no network of IPv{family}") from error
    return first, first + size - 1


def render(member: Range, family: Family) -> str:
    """The canonical spelling; as `parse` reads it."""
    number, octets = (AF_INET, 4) if family == 4 else (AF_INET6, 16)
    first, last = member
    text = inet_ntop(number, first.to_bytes(octets, "big"))
    size = last - first + 1
    if size == 1:
        return text
    if size & (size - 1) or first % size:
        return f"{text}-{inet_ntop(number, last.to_bytes(octets, 'big'))}"
    return f"{text}/{8 * octets - size.bit_length() + 1}"
