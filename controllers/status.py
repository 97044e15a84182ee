"""What a probe asks: a small file with what works, and `check-status`, which reads it.

The file is Calico's (docs/reference/data-model.md#process-of-the-controllers): `{"Readiness":
{NAME: {"Ready": bool, "Reason": text}}}`.
Tested in tests/controllers/test_settings.py and test_process.py.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

log = logging.getLogger(__name__)

FILE = Path("/status/status.json")
STALE = 120.0
"""Seconds after which a file that was not written says that its writer is stuck."""


class Status:
    """The state of each part, by name. Every change is written at once, as a whole."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.parts: dict[str, tuple[bool, str]] = {}
        self._failed = ""

    def tell(self, part: str, ready: bool, reason: str = "") -> None:
        """Say how a part is; the file's age says when that was."""
        self.parts[part] = ready, reason
        if self._path is None:
            return
        body = {name: {"Ready": good, "Reason": why} for name, (good, why) in self.parts.items()}
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps({"Readiness": body}))
            fresh.replace(self._path)
        except OSError as error:
            if str(error) != self._failed:
                log.error("the status file cannot be written: %s", error)
            self._failed = str(error)

    @property
    def ready(self) -> bool:
        """Whether every part is."""
        return bool(self.parts) and all(good for good, _ in self.parts.values())

    @property
    def reason(self) -> str:
        """The parts that are not ready, and why."""
        return "; ".join(f"{name}: {why}" for name, (good, why) in self.parts.items() if not good)


def check(path: Path, *, liveness: bool, now: float | None = None) -> tuple[bool, str]:
    """The answer of a probe, and the line that it prints.

    Alive is a process that writes its file; ready is one whose parts all are.
    """
    try:
        age = (time.time() if now is None else now) - os.stat(path).st_mtime
        parts = json.loads(path.read_text())["Readiness"]
        reasons = [f"{name}: {one['Reason']}" for name, one in parts.items() if not one["Ready"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return False, f"status file {path} cannot be read: {problem}"
    if abs(age) > STALE:  # one of the future stood when the clock was set back
        return False, f"status file {path} was last written {age:.0f} s ago"
    if liveness or (parts and not reasons):
        return True, "Ready"
    return False, "; ".join(reasons) or "nothing is known yet"
