"""What happened in one run: every line counts for its digest, those of the story are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Trace:
    """`whole` keeps every line. `failures`: what must not have happened.

    `folder` is where the run's files lie, another one each time: it is left out.
    """

    now: Callable[[], float]
    whole: bool = False
    folder: str = "?"
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256()

    def detail(self, text: str) -> None:
        """One of very many: kernel, store, log lines."""
        line = f"{self.now():.6f}   {text.replace(self.folder, '')}"
        self._digest.update(line.encode(errors="replace"))
        self.count += 1
        if self.whole:
            self.lines.append(line)

    def story(self, text: str) -> None:
        """What an actor does."""
        line = f"{self.now():.6f} {text.replace(self.folder, '')}"
        self._digest.update(line.encode(errors="replace"))
        self.count += 1
        self.lines.append(line)

    def fail(self, text: str) -> None:
        """An invariant does not hold."""
        if text not in self.failures:
            self.failures.append(text)
            self.story(f"FAILURE {text}")

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()[:16]
