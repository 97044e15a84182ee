"""A program that a test runs by itself: it can be ended, killed, paused and started again."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod

from tests.support import stopping


class OwnProcess(ABC):
    """`start` sets `_process`; where it is reached stays the same over restarts."""

    _process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> object:
        """Start, and wait until it serves."""

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the process and wait for it; what it stored stays."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal_number)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Stop, and start on the same ports."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        stopping.pause(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
