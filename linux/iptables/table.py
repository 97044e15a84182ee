"""One iptables table of one family: cached actual state, commit of what differs.

Problem: reading the table back before each write costs as much as the write. So what we wrote is
remembered, a commit compares with the memory, and the periodic `refresh` finds drift. Whatever
goes wrong drops the memory, and the next attempt starts from a dump.

IPT-5: no program runs while nothing changed; a change costs one restore.
IPT-6: a chain that cannot be removed (a foreign rule names it) is left empty and does not hold
       up the rest; the next dump tries again.
IPT-7: after a failed restore the kernel has the old table (a restore is atomic) and the next
       attempt dumps first.
Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from linux import programs
from linux.errors import CommandError
from linux.iptables.detect import Backend, program
from linux.iptables.hashes import HashScheme
from linux.iptables.plan import Desired, Plan, Rendered, Renderer, make_plan
from linux.iptables.save import Actual, parse_save

_TRIES = 5
_FIRST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Report:
    """What a commit did. `drift` names what a dump found different from our last write."""

    chains_written: tuple[str, ...] = ()
    chains_deleted: tuple[str, ...] = ()
    kernel_chains_edited: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    lines: int = 0
    saves: int = 0
    restores: int = 0


class Table:
    """One table (`raw`, `mangle`, `nat`, `filter`) of one family (4 or 6).

    `saves` and `restores` count the programs started so far. `lock_wait`: seconds that a restore
    waits for another one's lock.
    """

    def __init__(
        self,
        name: str,
        family: Literal[4, 6],
        backend: Backend,
        scheme: HashScheme,
        *,
        lock_wait: int = 10,
    ) -> None:
        self.name, self.family, self.backend = name, family, backend
        self.saves = 0
        self.restores = 0
        self._scheme = scheme
        self._renderer = Renderer(scheme)
        self._actual: Actual | None = None
        self._written: Rendered | None = None
        self._stuck: set[str] = set()
        self._turn = asyncio.Lock()
        self._save = [program(family, backend, "save"), "-t", name]
        self._restore = [
            program(family, backend, "restore"), "--noflush", "--wait", str(lock_wait),
        ]  # fmt: skip

    async def refresh(self) -> tuple[str, ...]:
        """Dumps the table (one save); returns the chains that drifted since our last write.

        The next `commit` repairs them. Raises `CommandError`.
        """
        async with self._turn:
            self._stuck.clear()
            return await self._dump()

    async def _dump(self) -> tuple[str, ...]:
        self.saves += 1
        output = await programs.run(self._save)
        self._actual = parse_save(output.decode(errors="replace"), self.name, self._scheme)
        if self._written is None:
            return ()
        plan = make_plan(self._actual, self._written, self.backend, self._stuck)
        return (*plan.written, *plan.deleted, *plan.edited)

    async def commit(self, desired: Desired, *, refresh: bool = False) -> Report:
        """Makes the table as desired with at most one restore; none when nothing differs.

        The first commit, one after an error and one with `refresh=True` dump before they
        compare. Raises `CommandError` when the restore still fails after retries, `ValueError`
        when `desired` holds what iptables could misread.
        """
        async with self._turn:
            wanted = self._renderer.render(desired)
            saves, restores = self.saves, self.restores
            drift: tuple[str, ...] = ()
            if refresh:
                self._stuck.clear()
            for attempt in range(1, _TRIES + 1):
                if self._actual is None or (refresh and attempt == 1):
                    drift = await self._dump() or drift
                assert self._actual is not None
                plan = make_plan(self._actual, wanted, self.backend, self._stuck)
                try:
                    await self._write(plan)
                except CommandError:
                    if attempt == _TRIES:
                        raise
                    # Once may be a race with another writer; twice may be a chain in use.
                    if attempt > 1:
                        self._stuck.update(plan.deleted)
                    await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
                    continue
                self._written = wanted
                return Report(
                    plan.written,
                    plan.deleted,
                    plan.edited,
                    drift,
                    len(plan.lines),
                    self.saves - saves,
                    self.restores - restores,
                )
            raise AssertionError("unreachable")

    async def _write(self, plan: Plan) -> None:
        if not plan.lines:
            return
        text = "\n".join((f"*{self.name}", *plan.lines, "COMMIT", ""))
        self.restores += 1
        # Unknown until the program says yes: a cancelled restore may have happened or not.
        self._actual = None
        await programs.run(self._restore, text.encode())
        self._actual = plan.after

    def matches(self, desired: Desired) -> bool:
        """Whether the remembered state equals `desired` (no program runs)."""
        if self._actual is None:
            return False
        wanted = self._renderer.render(desired)
        return not make_plan(self._actual, wanted, self.backend, self._stuck).lines
