"""Our tables of both families: desired, actual, and one batch for the difference.

Problem: the tables are ours alone, so those of others are never read or written. But another
program may flush ours, and a dump before each write would cost more than the write. The ruleset
remembers what it wrote, as hashes; a commit compares with the memory and `refresh` finds drift. An
error drops the memory, and the next attempt starts from a dump.

A changed chain is emptied and filled again in the same batch; unchanged chains, and the counters
of their rules, stay as they are. No packet meets a half-written batch. The kernel holds removed
objects until their readers have left, and a removal of links waits for that too. So a commit may
leave undesired objects to a later sweep: elements, and chains that the kernel does not call.

NFT-1: nothing is sent while nothing changed; all changes of both families are one batch, and one
       more where an interface begins to lead to a chain that is made, or a rule to ask a set of
       ports that is (`linux.nftables.plan`).
NFT-2: only tables of our name are written.
NFT-3: after a refused batch the kernel has the old rules, and the next attempt dumps first.
NFT-4: where the kernel takes no datagram of that size, as from a user without rights on the host,
       the batch comes in parts, each chain whole and those that the kernel calls last.
Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from linux.closing import Closing
from linux.errors import KernelError
from linux.nftables import messages
from linux.nftables.connection import Connection, Refused, to_its_end
from linux.nftables.desired import DesiredTables
from linux.nftables.dump import Actual, read_counters, read_tables
from linux.nftables.expressions import Family
from linux.nftables.plan import Plan
from linux.nftables.rules import Packed

_TRIES = 3
_FIRST_PAUSE = 0.02
# Another program may have changed the tables since the dump; else it is refused again.
_RACES = (errno.ENOENT, errno.EEXIST, errno.EBUSY, errno.EINTR)
_TRIAL = "trial"
_FEW = 60
"""Chains and elements that are written in the event loop."""
_BIG = 64 << 10
_READERS_LEAVE = 0.05
"""Seconds in which every packet has left rules that are gone: it takes microseconds, unless the
processor itself is taken away, as from a virtual machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a commit did; `drift` names what a dump found different from our last write."""

    chains_written: tuple[str, ...] = ()
    chains_deleted: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0


class Ruleset(DesiredTables, Closing):
    """Our tables in the kernel, and what makes them as desired."""

    def __init__(self, families: Iterable[Family], table: str) -> None:
        super().__init__(families, table)
        self.commits = self.commit_errors = 0
        self.dumps = self.dump_errors = 0
        self.blamed: dict[tuple[Family, str], int] = {}
        self._connection = Connection()
        self._actual: dict[Family, Actual] | None = None
        self._committed = self.doubted = False
        self._turn = asyncio.Lock()

    @property
    def port(self) -> int:
        """What the kernel calls our socket: changes that come from it are ours."""
        return self._connection.port

    def close(self) -> None:
        """Closes the connection; the rules stay."""
        self._connection.close()

    @property
    def dirty(self) -> bool:
        """Whether a commit may have something to write."""
        known = self._committed and self._actual is not None and not self.doubted
        return bool(self._dirty) or not known

    def doubt(self) -> None:
        """Another program has changed the tables: the next commit reads them before it writes."""
        self.doubted = True

    def differs(self, family: Family, chain: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than desired."""
        if self._actual is None:
            return True
        have = self._actual[family].chains.get(chain)
        desired = self._desired[family].chains.get(chain)
        return have is not None and (desired is None or desired[1].hashes != have[1])

    async def refresh(self) -> tuple[str, ...]:
        """Reads the tables; returns what drifted since our last write. Raises `KernelError`."""
        async with self._turn:
            return await self._dump()

    async def _dump(self) -> tuple[str, ...]:
        self.dumps += 1
        # Before the reading: a change during it may concern what was read already.
        self.doubted = False
        self._actual = None
        known = self._dirty | self._unswept

        try:
            where = self._connection, tuple(self._desired), self.table
            self._actual = await asyncio.to_thread(read_tables, *where)
        except KernelError:
            self.dump_errors += 1
            raise
        drift = self._mark_differences(self._actual, known)
        return tuple(drift) if self._committed else ()

    async def commit(self, *, refresh: bool = False, sweep: bool = True) -> Report:
        """Makes the tables as desired with at most one batch.

        The first commit, one after an error or a doubt and one with `refresh` dump before they
        compare. Without `sweep` undesired objects may stay. Raises `KernelError` when the kernel
        still refuses after retries.
        """
        async with self._turn:
            drift: tuple[str, ...] = ()
            for attempt in range(1, _TRIES + 1):
                if self._actual is None or self.doubted or (refresh and attempt == 1):
                    drift = await self._dump() or drift
                assert self._actual is not None
                # A chain that was left for the sweep may be in the way of one that is desired.
                all_goes = sweep or attempt > 1
                scope, plan = self._next_plan(self._actual, sweep=all_goes)
                try:
                    await self._send(plan)
                except BaseException as error:
                    self._dirty |= scope
                    self._actual = None
                    if not isinstance(error, KernelError):
                        raise
                    self.commit_errors += 1
                    self.blamed = plan.blamed(error)
                    if attempt == _TRIES or error.errno not in _RACES:
                        raise
                    await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
                    continue
                self._committed, self.blamed = True, {}
                size = len(plan.requests), sum(map(len, plan.requests))
                return Report(tuple(plan.written), tuple(plan.deleted), drift, *size)
            raise AssertionError("unreachable")

    def commit_now(self, *, sweep: bool = True) -> bool:
        """As `commit`, before this returns; False where that takes time or was refused: then
        nothing was written, or the tables are read before anything is.
        """
        if self._actual is None or self.doubted or self._turn.locked():
            return False
        if len(self._dirty) + (len(self._unswept) if sweep else 0) > _FEW:
            return False
        scope, plan = self._next_plan(self._actual, sweep=sweep)
        try:
            if plan.requests:
                self._commit(plan)
        except KernelError:
            self._dirty |= scope
            self.commit_errors += 1
            self._actual = None
            return False
        self._committed, self.blamed = True, {}
        return True

    async def _send(self, plan: Plan) -> None:
        if not plan.requests:
            return
        if sum(map(len, plan.requests)) < _BIG:
            self._commit(plan)
            return
        # The socket is the thread's until it is done.
        await to_its_end(asyncio.to_thread(self._commit, plan))

    def _commit(self, plan: Plan) -> None:
        for first, end in plan.parts(self._connection.room):
            self.commits += 1
            if plan.splits.get(first):
                time.sleep(_READERS_LEAVE)
            try:
                self._connection.commit(plan.requests[first:end], plan.names[first:end])
            except Refused as error:
                raise error.moved(first) from None

    async def accepts(self, family: Family, rules: Packed) -> bool:
        """Whether the kernel would take a chain with these rules now; nothing is left."""
        async with self._turn:
            there = self._actual[family].port_sets if self._actual is not None else set()
            missing = (ports for name, ports in rules.port_sets.items() if name not in there)
            requests = [
                messages.new_table(family, self.table),
                messages.new_chain(family, self.table, _TRIAL, None),
                *(each for set_ in missing for each in messages.port_set(family, self.table, set_)),
                *rules.requests(family, self.table, _TRIAL),
            ]
            try:
                self._connection.commit(requests, trial=True)
            except KernelError:
                return False
            return True

    async def counters(
        self, family: Family, chains: Collection[str]
    ) -> dict[str, list[tuple[int, int, str]]]:
        """(packets, bytes, comment) of each rule of these chains, those that exist."""
        async with self._turn:
            where = self._connection, family, self.table
            return await asyncio.to_thread(read_counters, *where, chains)

    def remove(self) -> bool:
        """Takes our tables away, with all in them; returns whether there were any.

        The rules go first and the rest when no packet is inside them any more
        (`linux.nftables.plan` says why): in one batch, one of about 100,000 packets was lost. Takes
        a moment, so it is not for an event loop. Raises `KernelError`.
        """
        there = [
            family
            for family in self._desired
            if self._connection.table_flags(family, self.table) is not None
        ]
        if there:
            self._change_tables(there, "empty", messages.flush_table)
            time.sleep(_READERS_LEAVE)
            self._change_tables(there, "remove", messages.delete_table)
        self._actual = None
        return bool(there)

    def _change_tables(
        self, families: Sequence[Family], about: str, request: Callable[[Family, str], bytes]
    ) -> None:
        self._connection.commit(
            [request(family, self.table) for family in families],
            [f"{about} table {self.table}"] * len(families),
        )
