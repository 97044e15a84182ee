"""One iptables table of one family: cached actual state, commit of what differs.

Problem: a dump before each write costs as much as the write. So the table remembers what it
wrote, a commit compares with the memory, and the periodic `refresh` finds drift. An error drops
the memory, and the next attempt starts from a dump.

The desired chains are kept here too, so a change costs what it touches. After a removal of rules
iptables-nft, or the next writer of rules, waits for the kernel's readers (10 to 20 ms). So
`commit` may leave undesired chains and rules to a later sweep.

IPT-5: no program runs while nothing changed; a change costs one restore.
IPT-6: a chain that cannot be removed (a foreign rule names it) is left empty and does not hold
       up the rest; the next dump tries again.
IPT-7: after a failed restore the kernel has the old table (a restore is atomic) and the next
       attempt dumps first.
IPT-9: `refused` names exactly the chains whose rules the kernel does not take, and leaves nothing.
Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from linux.errors import CommandError, KernelError
from linux.iptables.desired_chains import DesiredChains
from linux.iptables.detect import Backend
from linux.iptables.hashes import HashScheme
from linux.iptables.packed import Drifted, Packer
from linux.iptables.plan import Plan, make_plan
from linux.iptables.programs import Programs
from linux.iptables.render import Desired, Renderer
from linux.iptables.save import Actual, parse_counters, parse_save
from linux.iptables.trial import Trial
from linux.iptables.writer import AT_ONCE, Writer

_TRIES = 5
_FIRST_PAUSE = 0.05
# Bytes of a dump that are read in a thread.
_LONG = 1 << 20


@dataclass(frozen=True, slots=True)
class Report:
    """What a commit did.

    `drift` names what a dump found different from our last write; `garbage` the chains that
    are undesired, or hold undesired rules.
    """

    chains_written: tuple[str, ...] = ()
    chains_deleted: tuple[str, ...] = ()
    kernel_chains_edited: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    lines: int = 0
    saves: int = 0
    restores: int = 0
    garbage: frozenset[str] = frozenset()


class Table(DesiredChains):
    """One table (`raw`, `mangle`, `nat`, `filter`) of one family (4 or 6).

    `programs` counts its reads and writes, `packed` the writes without a program. `lock_wait`:
    seconds that a restore waits for another one's lock. `warm`: after the first write a started
    restore always waits for the next one, and with nft none is started for rules of known kinds
    (`linux.iptables.packed`). `renderer` may be that of the other family's table: most chains are
    the same.
    """

    def __init__(
        self,
        name: str,
        family: Literal[4, 6],
        backend: Backend,
        scheme: HashScheme,
        *,
        lock_wait: int = 10,
        warm: bool = False,
        renderer: Renderer | None = None,
    ) -> None:
        self.name, self.family, self.backend = name, family, backend
        super().__init__(renderer or Renderer(scheme))
        self._scheme = scheme
        self._actual: Actual | None = None
        self._garbage: frozenset[str] = frozenset()
        self._committed = False
        self._stuck: set[str] = set()
        self._turn = asyncio.Lock()
        self.programs = Programs(name, family, backend, lock_wait=lock_wait, warm=warm)
        packer = Packer(name, family, scheme) if backend == "nft" and warm else None
        self._writer = Writer(self.programs, packer)

    def close(self) -> None:
        """End what waits; the rules stay."""
        self._writer.close()

    @property
    def packed(self) -> int:
        """How often the table was written without a program."""
        return self._writer.packed

    @property
    def dirty(self) -> bool:
        """Whether a commit may have something to write."""
        return bool(self._changed) or not self._committed or self._actual is None

    def differs(self, chain: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than desired."""
        if self._actual is None:
            return True
        have, desired = self._actual.chains.get(chain), self._desired.chains.get(chain)
        return have is not None and (desired is None or desired.hashes != have)

    async def refresh(self) -> tuple[str, ...]:
        """Dumps the table (one save); returns the chains that drifted since our last write.

        The next `commit` repairs them. Raises `CommandError`.
        """
        async with self._turn:
            self._stuck.clear()
            return await self._dump()

    async def counters(self, chains: Collection[str]) -> dict[str, list[tuple[int, int, str]]]:
        """Packets, bytes and text of each rule of these chains, those that exist (one save).

        Raises `CommandError`.
        """
        counted = parse_counters(await self.programs.counters(), self.name)
        return {name: rules for name, rules in counted.items() if name in chains}

    async def _dump(self) -> tuple[str, ...]:
        text = await self.programs.save()
        if len(text) < _LONG:
            self._actual = parse_save(text, self.name, self._scheme)
        else:
            self._actual = await asyncio.to_thread(parse_save, text, self.name, self._scheme)
        plan = self._plan_of(None, sweep=False)
        differing = {*plan.chains, *plan.kernel, *plan.garbage}
        known = self._changed | self._garbage
        self._changed |= differing
        self._garbage = plan.garbage
        return tuple(name for name in differing if name not in known) if self._committed else ()

    async def commit(
        self, desired: Desired | None = None, *, refresh: bool = False, sweep: bool = True
    ) -> Report:
        """Makes the table as desired with at most one restore; none when nothing differs.

        `desired`: the whole desired state, from now on. The first commit, one after an error and
        one with `refresh=True` dump before they compare. Without `sweep` undesired objects may
        stay; where rules must be removed all the same, they go along. Raises `CommandError` when
        the restore still fails after retries, `ValueError` when `desired` holds what iptables
        could misread.
        """
        async with self._turn:
            if desired is not None:
                self.want_all(desired)
            saves, restores = self.programs.saves, self.programs.restores
            drift: tuple[str, ...] = ()
            if refresh:
                self._stuck.clear()
            for attempt in range(1, _TRIES + 1):
                if self._actual is None or (refresh and attempt == 1):
                    drift = await self._dump() or drift
                plan = self._plan(sweep)
                # What becomes desired meanwhile belongs to the next commit.
                changed, self._changed = self._changed, set()
                try:
                    await self._write(plan)
                except BaseException as error:
                    self._changed |= changed
                    if not isinstance(error, CommandError) or attempt == _TRIES:
                        raise
                    # Once may be a race with another writer; twice may be a chain in use.
                    if attempt > 1:
                        self._stuck.update(plan.deleted)
                    await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
                    continue
                self._committed = True
                self._garbage = plan.garbage
                changes = plan.written, plan.deleted, plan.edited
                runs = self.programs.saves - saves, self.programs.restores - restores
                return Report(*changes, drift, plan.size, *runs, plan.garbage)
            raise AssertionError("unreachable")

    def commit_now(self, *, sweep: bool = True) -> Report | None:
        """As `commit`, before this returns; None where that takes a program or time.

        Nothing has been done then, or the table is read again before anything is.
        """
        if not self._writer.packs or self._actual is None or self._turn.locked():
            return None
        desired, known = self._desired.chains, self._actual.chains
        fresh = [desired[one] for one in self._changed if one in desired and one not in known]
        if sum(len(chain.hashes) for chain in fresh) > AT_ONCE:
            # New chains alone are that many lines: no plan is needed to see it.
            return None
        plan = self._plan(sweep)
        try:
            written = self._writer.write_now(plan)
        except (Drifted, KernelError, OSError):
            # No answer, perhaps: then it may have happened. The next commit looks first.
            self._actual = None
            return None
        if not written:
            return None
        self._actual.apply(plan.chains, plan.kernel)
        self._changed.clear()
        self._committed, self._garbage = True, plan.garbage
        return Report(
            plan.written, plan.deleted, plan.edited, lines=plan.size, garbage=plan.garbage
        )

    def _plan(self, sweep: bool) -> Plan:
        if not sweep:
            # What was undesired before still is: only a sweep looks at it again.
            plan = self._plan_of(self._changed, sweep=False)
            garbage = (self._garbage - self._changed) | plan.garbage
            # Where the wait must be paid, now is as good as later.
            if not (plan.frees and garbage):
                return replace(plan, garbage=garbage)
        return self._plan_of(self._changed | self._garbage, sweep=True)

    def _plan_of(self, only: Collection[str] | None, *, sweep: bool) -> Plan:
        assert self._actual is not None
        return make_plan(
            self._actual, self._desired, self.backend, self._stuck, only=only, sweep=sweep
        )

    async def _write(self, plan: Plan) -> None:
        if not plan.steps:
            return
        actual = self._actual
        assert actual is not None
        # Unknown until the program says yes: a cancelled restore may have happened or not.
        self._actual = None
        await self._writer.write(plan)
        actual.apply(plan.chains, plan.kernel)
        self._actual = actual

    async def refused(self, chains: Mapping[str, Sequence[str]] | None = None) -> dict[str, str]:
        """Which of these chains the kernel does not take, and what it says.

        None: of those that the next commit would write (`linux.iptables.trial`).
        """
        async with self._turn:
            suspects = dict(self._suspects(self._actual) if chains is None else chains)
            return await Trial(self._scheme, self.programs.restore, self._forget).refused(suspects)

    def _forget(self) -> None:
        """What the kernel has is unknown from now on."""
        self._actual = None
