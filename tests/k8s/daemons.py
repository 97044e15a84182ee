"""A program of a cluster with its log; ended by its process, never by its name."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Daemon:
    """One program, started and started again with the same words."""

    def __init__(
        self, log: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.log, self.command = log, list(command)
        self._environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process, or that which started it inside."""
        assert self._process is not None, f"{self.command[0]} was not started"
        return self._process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it and what it started in its session."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None

    def tail(self, length: int = 3000) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-length:] if self.log.exists() else ""
