"""Flows as lines of JSON (`flows/written.py`) in a file that is rotated by its size.

FILE is the newest, FILE.1 the one before; what goes beyond the number of files is removed. After a
restart lines are added to FILE; half a line, of a process that was killed or of a full disk, is
ended first.
Tested in tests/flows/test_exports.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from flows.record import Flow
from flows.written import line
from libcalico.errors import MuslinError


class JSONLines:
    """`most_bytes` of a file before the next one is begun, `files` in all."""

    name = "file"

    def __init__(self, file: str, most_bytes: int, files: int) -> None:
        self._path, self._most, self._files = Path(file), most_bytes, files
        self._turn = threading.Lock()
        try:
            self._handle = self._open()
        except OSError as error:
            raise MuslinError(f"GOLDMANE_EXPORT_FILE: {file}: {error.strerror}") from None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o640)

    def write(self, flows: Sequence[Flow]) -> None:
        """Write one line for each flow. Raises OSError where some of them are not written."""
        data = memoryview(b"".join(line(flow) + b"\n" for flow in flows))
        with self._turn:
            self._rotate()
            self._end_line()
            while data:
                data = data[os.write(self._handle, data) :]

    def _end_line(self) -> None:
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            os.write(self._handle, b"\n")

    def _rotate(self) -> None:
        if os.fstat(self._handle).st_size < self._most:
            return
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._files == 1:
            self._path.unlink(missing_ok=True)
        # Closed once there is another: where rotating fails, the next call writes to this one.
        full, self._handle = self._handle, self._open()
        os.close(full)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def close(self) -> None:
        """Give the file back; a `write` in another thread ends first, or raises OSError."""
        with self._turn:
            os.close(self._handle)
            self._handle = -1
