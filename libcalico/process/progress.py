"""How far a long piece of work is: on standard error, and only when it takes over two seconds.

On a terminal it is one line that is rewritten and goes away at the end; elsewhere (a log, a pipe)
it is a plain line after two seconds and then at growing intervals. Standard output is never
touched, so what a command prints is the same with it and without. `MUSLIN_PROGRESS=never` switches
it off. A thread of its own writes, so the work may hold the interpreter or wait as it likes; the
thread is started only after the work has begun and ends with it.

    with Progress("policy plan") as progress:
        progress.begin("comparing", total=len(pairs))
        for pair in pairs:
            progress.done += 1

Tested in tests/libcalico/test_progress.py.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TextIO

QUIET = 2.0
"""Seconds before the first word: what is shorter needs none."""
REWRITTEN = 0.2
"""Seconds between two looks of a bar."""
LINES = (8.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds between two lines in a log; the last one repeats."""
BAR = 24
VARIABLE = "MUSLIN_PROGRESS"


class Progress:
    """Tells of work while it is entered. `done` and `total` are counts; a total of 0 is unknown."""

    def __init__(
        self,
        title: str,
        stream: TextIO | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.title, self.phase = title, ""
        self.done, self.total = 0, 0
        self._stream = sys.stderr if stream is None else stream
        self._off = environ.get(VARIABLE, "") == "never" or self._stream.closed
        self._began = 0.0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, phase: str, total: int = 0) -> None:
        """The next part of the work; its count begins at 0."""
        self.done, self.total, self.phase = 0, total, phase

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if not self._off:
            self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def line(self, *, bar: bool) -> str:
        """What is told now."""
        seconds = time.monotonic() - self._began
        return text(self.title, self.phase, (self.done, self.total), seconds, bar=bar)

    def _tell(self) -> None:
        try:
            self._tell_on(self._stream, self._stream.isatty())
        except (OSError, ValueError):
            return  # the stream is gone: the work is not

    def _tell_on(self, stream: TextIO, terminal: bool) -> None:
        if self._over.wait(QUIET):
            return
        pauses = _pauses(terminal)
        while True:
            line = self.line(bar=terminal)
            stream.write(f"\r\x1b[K{fitting(line)}" if terminal else f"{line}\n")
            stream.flush()
            if self._over.wait(next(pauses)):
                break
        if terminal:
            stream.write("\r\x1b[K")
            stream.flush()


def _pauses(terminal: bool) -> Iterator[float]:
    if not terminal:
        yield from LINES[:-1]
    while True:
        yield REWRITTEN if terminal else LINES[-1]


def text(title: str, phase: str, counts: tuple[int, int], seconds: float, *, bar: bool) -> str:
    """`title: phase [####....] 120 of 400 (30 %), 12 s`; without a total no bar. Pure."""
    done, total = counts
    words = f"{title}: {phase}" if phase else title
    if total:
        share = min(done / total, 1.0)
        if bar:
            filled = int(share * BAR)
            words += f" [{'#' * filled}{'.' * (BAR - filled)}]"
        words += f" {done} of {total} ({share:.0%})".replace("%", " %")
    elif done:
        words += f" {done}"
    return f"{words}, {seconds:.0f} s"


def fitting(line: str) -> str:
    """The line cut to the width of the terminal, so that it stays one."""
    import shutil

    width = shutil.get_terminal_size().columns - 1
    return line if len(line) <= width else line[: max(width - 3, 0)] + "..."
