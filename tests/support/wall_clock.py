"""A wall clock that jumps under a process, by libfaketime; its monotonic clock goes on evenly."""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class WallClock:
    """`environment` is for the process, which reads the file whenever it asks for the time."""

    def __init__(self, folder: Path) -> None:
        if not LIBRARY.exists():
            pytest.skip("needs libfaketime (Debian: libfaketime)")
        self._file = folder / "wall-clock"
        self.jump(0)
        self.environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "NO_FAKE_STAT": "1",
        }

    def jump(self, seconds: int) -> None:
        """From now on the clock differs by so much from the true time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}s\n")
        fresh.chmod(0o644)
        fresh.replace(self._file)
