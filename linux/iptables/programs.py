"""The programs that read and write one table, iptables-save and iptables-restore, and their count.

Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from linux import programs
from linux.errors import CommandError
from linux.iptables.absence import with_cure
from linux.iptables.detect import Backend, program

# What waited for the write goes on first; a burst of writes starts its own.
_PAUSE_BEFORE_START = 0.005


class Programs:
    """Reads and writes a table by programs.

    `saves` and `restores` count the reads and writes so far, `save_errors` and `restore_errors`
    those that failed, `lines` what was written. `lock_wait`: seconds that a restore waits for
    another one's lock. `warm`: `prepare` starts a restore that waits for the next write.
    """

    def __init__(
        self, name: str, family: Literal[4, 6], backend: Backend, *, lock_wait: int, warm: bool
    ) -> None:
        self.saves = self.save_errors = 0
        self.restores = self.restore_errors = 0
        self.lines = 0
        self._name, self._warm = name, warm
        self._save = [program(family, backend, "save"), "-t", name]
        self._restore = programs.Prepared(
            [program(family, backend, "restore"), "--noflush", "--wait", str(lock_wait)]
        )

    def close(self) -> None:
        """End the restore that waits."""
        self._restore.close()

    def prepare(self) -> None:
        """Soon have a restore wait for the next write, if `warm`."""
        if self._warm:
            self._restore.prepare(_PAUSE_BEFORE_START)

    async def save(self) -> str:
        """The table as iptables-save prints it. Raises `CommandError`."""
        self.saves += 1
        try:
            output = await programs.run(self._save)
        except CommandError as error:
            self.save_errors += 1
            raise with_cure(error) from None
        return output.decode(errors="replace")

    async def counters(self) -> str:
        """The table with the counters of its rules; it is not counted. Raises `CommandError`."""
        output = await programs.run([*self._save, "-c"])
        return output.decode(errors="replace")

    async def restore(self, lines: Sequence[str]) -> None:
        """Write these lines in one transaction. Raises `CommandError`."""
        self.restores += 1
        self.lines += len(lines)
        try:
            await self._restore.run("\n".join((f"*{self._name}", *lines, "COMMIT", "")).encode())
        except CommandError as error:
            self.restore_errors += 1
            raise with_cure(error) from None
