"""Delays before a program that died starts again: none the first time, then growing ones.

A kill costs no delay, and a crash loop does not load the machine. Pure. Tested in
`tests/node/test_restart.py`.
"""

from __future__ import annotations

STEADY_SECONDS = 10.0
FIRST_DELAY = 0.25
LONGEST_DELAY = 5.0


class RestartPolicy:
    """The delays of one program, by the length of its lives."""

    def __init__(self) -> None:
        self._short_lives = 0

    def delay(self, lived: float) -> float:
        """Seconds to wait before the next start, after a life of `lived` seconds.

        A life of `STEADY_SECONDS` or more clears the record.
        """
        if lived >= STEADY_SECONDS:
            self._short_lives = 0
        count, self._short_lives = self._short_lives, self._short_lives + 1
        return min(FIRST_DELAY * 2 ** (count - 1), LONGEST_DELAY) if count else 0.0
