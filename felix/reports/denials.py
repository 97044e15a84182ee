"""Counts of denied packets that outlive what resets the kernel's.

While denied packets are followed, rules tell of them (`felix.reports.drops`); so chains are written
anew when the first follower comes and when the last one goes, and the kernel counts from 0 again.
What it had counted is kept here, as long as the rule, or the workload whose end of chain it is,
stays what it was.

Invariant:
  DEN-1  A count never falls because packets are followed, or are no longer.
Tested in tests/felix/kernel/test_drops.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec

from libcalico.local.node_api import Denier, DropCount
from linux.errors import KernelError

Subject = tuple[Denier, int, str]


class KeptCounts:
    """`read` says what the kernel has counted, and raises `KernelError`. `rule_of`: what stands for
    the rule that counted, as it is now; where it differs, the rule is another one.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Iterable[DropCount]]],
        rule_of: Callable[[DropCount], object],
    ) -> None:
        self._read, self._rule_of = read, rule_of
        self._kept: dict[Subject, tuple[DropCount, object]] = {}
        self._turn = asyncio.Lock()

    async def counts(self) -> list[DropCount]:
        """What was kept, and what the kernel has counted since. Raises `KernelError`."""
        async with self._turn:
            found = await self._now()
            for subject, (count, rule) in list(self._kept.items()):
                if self._rule_of(count) != rule:
                    del self._kept[subject]
                    continue
                now = found.get(subject)
                found[subject] = count if now is None else _sum(count, now)
            return list(found.values())

    async def _now(self) -> dict[Subject, DropCount]:
        """Of one rule as it is written the kernel may have several."""
        found: dict[Subject, DropCount] = {}
        for count in await self._read():
            subject = (count.by, count.version, count.endpoint)
            known = found.get(subject)
            found[subject] = count if known is None else _sum(known, count)
        return found

    async def across(self, change: Callable[[], Awaitable[None]]) -> None:
        """Have something done that writes rules anew, and keep what they had counted.

        What passes between the first look and the writing is not counted. Where they cannot be
        read it is done all the same.
        """
        async with self._turn:
            before: dict[Subject, tuple[DropCount, object]] = {}
            with suppress(KernelError):
                now = await self._now()
                before = {subject: (each, self._rule_of(each)) for subject, each in now.items()}
            await change()
            after: dict[Subject, DropCount] = {}
            with suppress(KernelError):
                after = await self._now()
            for subject, (count, rule) in before.items():
                left = after.get(subject)
                # One that did not fall still stands as it was written.
                if left is None or left.packets < count.packets:
                    kept = self._kept.get(subject)
                    same = kept is not None and kept[1] == rule
                    self._kept[subject] = (_sum(kept[0], count) if kept and same else count, rule)


def _sum(one: DropCount, other: DropCount) -> DropCount:
    packets, octets = one.packets + other.packets, one.bytes + other.bytes
    return msgspec.structs.replace(other, packets=packets, bytes=octets)
