"""Flows as lines of JSON (`flows/written.py`) in a file that is rotated by its size.

FILE is the newest, FILE.1 the one before; what goes beyond the number of files is removed. After a
restart lines are added to FILE; half a line, of a process that was killed, is ended first.
"""

from __future__ import annotations

import os
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
        try:
            self._handle = self._open()
        except OSError as error:
            raise MuslinError(f"GOLDMANE_EXPORT_FILE: {file}: {error.strerror}") from None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        handle = os.open(self._path, flags, 0o640)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")
        return handle

    def write(self, flows: Sequence[Flow]) -> None:
        """Write one line for each flow. Raises OSError where some of them are not written."""
        self._rotate()
        data = memoryview(b"".join(line(flow) + b"\n" for flow in flows))
        while data:
            data = data[os.write(self._handle, data) :]

    def _rotate(self) -> None:
        if os.fstat(self._handle).st_size < self._most:
            return
        os.close(self._handle)
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._files == 1:
            self._path.unlink()
        self._handle = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def close(self) -> None:
        """Give the file back."""
        os.close(self._handle)
