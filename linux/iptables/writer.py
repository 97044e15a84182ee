"""Writing a plan: as packed messages where the kinds of its rules are known, else by a program.

Tested in tests/linux/test_iptables_packed.py.
"""

from __future__ import annotations

import asyncio

from linux.errors import CommandError, KernelError
from linux.iptables.packed import Drifted, Packer
from linux.iptables.plan import Plan
from linux.iptables.programs import Programs
from linux.nftables.connection import Refused, to_its_end

AT_ONCE = 80
"""Lines that are written in the loop: about 2 ms."""
# Lines that are neither packed nor learned from: a program takes them, without the loop.
_LARGE = 2000


class Writer:
    """Writes one table. `packed` counts what was written without a program."""

    def __init__(self, programs: Programs, packer: Packer | None) -> None:
        self.packed = 0
        self._programs, self._packer = programs, packer

    def close(self) -> None:
        """End what waits; the rules stay."""
        self._programs.close()
        if self._packer is not None:
            self._packer.close()

    @property
    def packs(self) -> bool:
        """Whether it writes without a program at all."""
        return self._packer is not None

    async def write(self, plan: Plan) -> None:
        """Write the plan. Raises `CommandError`."""
        if await self._write_packed(plan):
            return
        large = plan.size > _LARGE
        # Tens of thousands of lines take a second, in which the loop does other things.
        lines = await asyncio.to_thread(lambda: plan.lines) if large else plan.lines
        try:
            await self._programs.restore(lines)
        finally:
            self._programs.prepare()
        if self._packer is not None and not large:
            self._packer.learn(lines)

    def write_now(self, plan: Plan) -> bool:
        """Write without a program, before this returns; False: nothing was written.

        Raises `Drifted`: the kernel has not what was read; `KernelError`, `OSError`: no answer, so
        that the outcome is unknown.
        """
        if self._packer is None or plan.size > AT_ONCE:
            return False
        requests = self._packer.pack(plan.steps)
        if not requests:
            return requests is not None
        try:
            self._packer.send(requests)
        except Refused:
            self._doubt(plan)
            return False
        except (KernelError, OSError):
            self._packer.forget()
            raise
        self._count(plan)
        return True

    async def _write_packed(self, plan: Plan) -> bool:
        """Write without a program, where all of it is known; False: nothing was written.

        Raises `CommandError` where the kernel gave no answer, so that the outcome is unknown, and
        where it has not what was read.
        """
        if self._packer is None or plan.size > _LARGE:
            return False
        try:
            requests = self._packer.pack(plan.steps)
        except Drifted as drifted:
            raise CommandError("a batch of nf_tables", 0, f"chain {drifted} drifted") from None
        if not requests:
            return False
        try:
            if plan.size <= AT_ONCE:
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
        self._count(plan)
        return True

    def _count(self, plan: Plan) -> None:
        self.packed += 1
        self._programs.lines += plan.size

    def _doubt(self, plan: Plan) -> None:
        """The kernel refused this as a batch: what was learned may be the reason."""
        if plan.adds and self._packer is not None:
            self._packer.forget()
