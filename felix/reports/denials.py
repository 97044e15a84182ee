"""Counts of denied packets that survive a rewrite of the chains.

While denied packets are watched, rules log them (`felix.reports.drops`). The chains are written
anew when the first watcher comes and when the last one goes, and the kernel counts from 0 again.
This module keeps the counts of before, as long as the rule (or the workload at the end of whose
chain packets are denied) is the same.

Invariant:
  DEN-1  A count never falls because packets are followed, or are no longer.
Tested in tests/felix/kernel/test_drops.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec

from libcalico.local.trace_messages import Denier, DropCount
from linux.errors import KernelError

Subject = tuple[Denier, int, str]


class KeptCounts:
    """The kernel's counts, and those of before its chains were written anew.

    `read` returns the kernel's counts, or raises `KernelError`. `rule_of` returns the rule of a
    count as it is now; where it differs from before, the rule is another one.
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
        """The kept counts plus the kernel's since then. Raises `KernelError`."""
        async with self._turn:
            totals = await self._now()
            for subject, (count, rule) in list(self._kept.items()):
                if self._rule_of(count) != rule:
                    del self._kept[subject]
                    continue
                now = totals.get(subject)
                totals[subject] = count if now is None else _sum(count, now)
            return list(totals.values())

    async def _now(self) -> dict[Subject, DropCount]:
        """The kernel's counts now; it may have several rules for one that is written."""
        counts: dict[Subject, DropCount] = {}
        for count in await self._read():
            subject = (count.by, count.version, count.endpoint)
            known = counts.get(subject)
            counts[subject] = count if known is None else _sum(known, count)
        return counts

    async def across(self, change: Callable[[], Awaitable[None]]) -> None:
        """Run `change`, which writes the rules anew, and keep their counts.

        Packets between the read and the rewrite are not counted. `change` runs also where the
        counts cannot be read.
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
                # A count that did not fall belongs to a rule that was not written anew.
                if left is None or left.packets < count.packets:
                    kept = self._kept.get(subject)
                    same = kept is not None and kept[1] == rule
                    self._kept[subject] = (_sum(kept[0], count) if kept and same else count, rule)


def _sum(one: DropCount, other: DropCount) -> DropCount:
    packets, octets = one.packets + other.packets, one.bytes + other.bytes
    return msgspec.structs.replace(other, packets=packets, bytes=octets)
