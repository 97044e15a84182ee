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
from linux.iptables.detect import Backend
from linux.iptables.hashes import HashScheme
from linux.iptables.packed import Drifted, Packer
from linux.iptables.plan import Plan, make_plan
from linux.iptables.programs import Programs
from linux.iptables.render import Desired, Rendered, Renderer
from linux.iptables.save import Actual, parse_counters, parse_save
from linux.iptables.trial import Trial
from linux.nftables.connection import Refused
from linux.threads import to_its_end

_TRIES = 5
_FIRST_PAUSE = 0.05
# Lines that are written in the loop: about 2 ms.
_AT_ONCE = 80
# Lines that are neither packed nor learned from: a program takes them, without the loop.
_LARGE = 2000
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


class Table:
    """One table (`raw`, `mangle`, `nat`, `filter`) of one family (4 or 6).

    `saves` and `restores` count the reads and writes so far, `lines` what was written.
    `packed` counts what was written without a program. `lock_wait`: seconds that a restore waits
    for another one's lock. `warm`: after the first write a started restore always waits for the
    next one, and with nft none is started for what is known (`linux.iptables.packed`).
    `renderer` may be that of the other family's table, of which most chains are the same.
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
        self.packed = 0
        self._scheme = scheme
        self._renderer = renderer or Renderer(scheme)
        self._actual: Actual | None = None
        self._desired = Rendered({}, {})
        self._changed: set[str] = set()
        self._garbage: frozenset[str] = frozenset()
        self._committed = False
        self._stuck: set[str] = set()
        self._turn = asyncio.Lock()
        self._programs = Programs(name, family, backend, lock_wait=lock_wait, warm=warm)
        self._packer = Packer(name, family, scheme) if backend == "nft" and warm else None

    def close(self) -> None:
        """End what waits; the rules stay."""
        self._programs.close()
        if self._packer is not None:
            self._packer.close()

    @property
    def saves(self) -> int:
        """How often the table was read."""
        return self._programs.saves

    @property
    def save_errors(self) -> int:
        """How often reading it failed."""
        return self._programs.save_errors

    @property
    def restores(self) -> int:
        """How often a program wrote it."""
        return self._programs.restores

    @property
    def restore_errors(self) -> int:
        """How often that failed."""
        return self._programs.restore_errors

    @property
    def lines(self) -> int:
        """How many lines were written, with and without a program."""
        return self._programs.lines

    # -- desired state -------------------------------------------------------------------------

    def want(
        self, chain: str, rules: Sequence[str], *, unordered: bool = False, closed: bool = False
    ) -> None:
        """One of our chains, whole; nothing happens before the next commit.

        `unordered`: the rules exclude each other, so a new one may stand anywhere; `closed`: but
        for the last one, which takes what the others leave. Raises `ValueError` for what iptables
        could misread.
        """
        rendered = self._renderer.chain(chain, rules, unordered=unordered, closed=closed)
        if self._desired.chains.get(chain) is not rendered:
            self._desired.chains[chain] = rendered
            self._changed.add(chain)

    def unwant(self, chain: str) -> None:
        """The chain is not desired any more."""
        if self._desired.chains.pop(chain, None) is not None:
            self._renderer.forget(chain)
            self._changed.add(chain)

    def want_hooks(
        self, inserts: Mapping[str, Sequence[str]], appends: Mapping[str, Sequence[str]]
    ) -> None:
        """All our rules in the kernel's own chains. Raises `ValueError` as `want` does."""
        kernel = self._renderer.kernel(inserts, appends)
        if kernel != self._desired.kernel:
            self._changed |= kernel.keys() | self._desired.kernel.keys()
            self._desired.kernel.clear()
            self._desired.kernel.update(kernel)

    @property
    def dirty(self) -> bool:
        """Whether a commit may have something to write."""
        return bool(self._changed) or not self._committed or self._actual is None

    @property
    def chains(self) -> int:
        """How many chains of ours are desired."""
        return len(self._desired.chains)

    @property
    def rules(self) -> int:
        """How many rules are desired in chains of ours."""
        return sum(len(chain.hashes) for chain in self._desired.chains.values())

    def differs(self, chain: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than desired."""
        if self._actual is None:
            return True
        have, desired = self._actual.chains.get(chain), self._desired.chains.get(chain)
        return have is not None and (desired is None or desired.hashes != have)

    def _suspects(self) -> dict[str, Sequence[str]]:
        actual = self._actual.chains if self._actual is not None else {}
        return {
            name: chain.rules
            for name in self._changed
            if (chain := self._desired.chains.get(name)) and actual.get(name) != chain.hashes
        }

    # -- the kernel ----------------------------------------------------------------------------

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
        counted = parse_counters(await self._programs.counters(), self.name)
        return {name: rules for name, rules in counted.items() if name in chains}

    async def _dump(self) -> tuple[str, ...]:
        text = await self._programs.save()
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
                self._want_all(desired)
            saves, restores = self.saves, self.restores
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
                return Report(
                    plan.written,
                    plan.deleted,
                    plan.edited,
                    drift,
                    plan.size,
                    self.saves - saves,
                    self.restores - restores,
                    plan.garbage,
                )
            raise AssertionError("unreachable")

    def commit_now(self, *, sweep: bool = True) -> Report | None:
        """As `commit`, before this returns; None where that takes a program or time.

        Nothing has been done then, or the table is read again before anything is.
        """
        if self._packer is None or self._actual is None or self._turn.locked():
            return None
        plan = self._plan(sweep)
        lines = plan.size
        if lines > _AT_ONCE:
            return None
        try:
            requests = self._packer.pack(plan.steps)
        except Drifted:
            self._actual = None
            return None
        if requests is None:
            return None
        if requests:
            try:
                self._packer.send(requests)
            except Refused:
                self._doubt(plan)
                return None
            except (KernelError, OSError):
                # No answer: it may have happened. The next commit looks first.
                self._packer.forget()
                self._actual = None
                return None
            self.packed += 1
            self._programs.lines += lines
            self._holds(plan, self._actual)
        self._changed.clear()
        self._committed, self._garbage = True, plan.garbage
        return Report(plan.written, plan.deleted, plan.edited, lines=lines, garbage=plan.garbage)

    def _doubt(self, plan: Plan) -> None:
        """The kernel refused this as a batch: what was learned may be the reason."""
        if plan.adds and self._packer is not None:
            self._packer.forget()

    def _holds(self, plan: Plan, actual: Actual) -> None:
        """The kernel has what the plan wrote."""
        for name, hashes in plan.chains.items():
            if hashes is None:
                actual.chains.pop(name, None)
            else:
                actual.chains[name] = hashes
        actual.kernel.update(plan.kernel)
        self._actual = actual

    def _want_all(self, desired: Desired) -> None:
        # Rendered as a whole first: what is refused changes nothing.
        self._renderer.render(desired)
        for name in [name for name in self._desired.chains if name not in desired.chains]:
            self.unwant(name)
        for name, rules in desired.chains.items():
            unordered, closed = name in desired.unordered, name in desired.closed
            self.want(name, rules, unordered=unordered, closed=closed)
        self.want_hooks(desired.inserts, desired.appends)

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
        if not await self._write_packed(plan):
            large = plan.size > _LARGE
            # Tens of thousands of lines take a second, in which the loop does other things.
            lines = await asyncio.to_thread(lambda: plan.lines) if large else plan.lines
            try:
                await self._programs.restore(lines)
            finally:
                self._programs.prepare()
            if self._packer is not None and not large:
                self._packer.learn(lines)
        self._holds(plan, actual)

    async def _write_packed(self, plan: Plan) -> bool:
        """Write without a program, where all of it is known; False: nothing was written.

        Raises `CommandError` where the kernel gave no answer, so that the outcome is unknown, and
        where it has not what was read.
        """
        if plan.size > _LARGE:
            return False
        try:
            requests = self._packer.pack(plan.steps) if self._packer is not None else None
        except Drifted as drifted:
            raise CommandError("a batch of nf_tables", 0, f"chain {drifted} drifted") from None
        if not requests or self._packer is None:
            return False
        lines = plan.size
        try:
            if lines <= _AT_ONCE:
                self._packer.send(requests)
            else:
                await to_its_end(asyncio.to_thread(self._packer.send, requests))
        except Refused as refused:
            self._doubt(plan)
            if plan.removes:
                raise CommandError("a batch of nf_tables", 0, str(refused)) from refused
            # The restore knows what to say of it, if there is anything to be said.
            return False
        except (KernelError, OSError) as error:
            self._packer.forget()
            raise CommandError("a batch of nf_tables", error.errno or 0, str(error)) from error
        self.packed += 1
        self._programs.lines += lines
        return True

    async def refused(self, chains: Mapping[str, Sequence[str]] | None = None) -> dict[str, str]:
        """Which of these chains the kernel does not take, and what it says.

        None: of those that the next commit would write. Their rules are written, without their
        jumps, to a chain that nothing leads to: all together, then by halves. Where not even an
        empty chain is taken, the rules are not to blame.
        """
        async with self._turn:
            suspects = dict(self._suspects() if chains is None else chains)
            trial = Trial(self._scheme, self._programs.restore, self._forget)
            return await trial.refused(suspects)

    def _forget(self) -> None:
        """What the kernel has is unknown from now on."""
        self._actual = None
