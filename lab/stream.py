"""A `packets.py` that runs in a machine or pod until it is asked for its figures."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import proc
from lab.errors import LabError
from lab.machine import FAST_PYTHON, Machine

PACKETS = Path(__file__).with_name("packets.py")


@dataclass
class Stream:
    """One running process."""

    words: Sequence[str]
    running: subprocess.Popen[bytes]

    def finish(self, *, ask: bool = True, timeout: float = proc.PATIENCE) -> dict[str, Any]:
        """End it (or wait for its own end) and read what it counted; LabError when it failed."""
        if ask:
            self.running.send_signal(signal.SIGTERM)
        try:
            output, _ = self.running.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.running.kill()
            output, _ = self.running.communicate()
        said = (output or b"").decode(errors="replace").strip()
        try:
            report: dict[str, Any] = json.loads(said.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise LabError(f"packets {' '.join(self.words)}: {said[-400:]}") from error
        return report


def begin(machine: Machine, netns: str | None, *words: str) -> Stream:
    """Start `packets.py WORDS` in a machine or a network namespace of it; returns when it works."""
    running = machine.start([*FAST_PYTHON, str(PACKETS), *words], netns=netns)
    assert running.stdout is not None
    stream = Stream(words, running)
    line = proc.first_line(running, running.stdout.fileno(), f"packets {' '.join(words)}")
    if line != b"ready\n":
        stream.finish()
        raise LabError(f"packets {' '.join(words)} did not begin")
    return stream
