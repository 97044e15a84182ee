"""How often the child has failed in a row, and why. Pure.

Tested in tests/bgp/test_limits.py and test_removal.py.
"""

from __future__ import annotations

_BACKOFF = (0.05, 0.5, 1.0, 2.0, 5.0)
_SETTLED = 30.0
STAYS_DEAD = 3
"""After so many ends in a row the speaker is a condition."""


class Failures:
    """`count`: starts in a row, with the one that runs. `trouble`: the reason in words.

    `start_failed`: the last child did not come so far as to run.
    """

    def __init__(self) -> None:
        self.count = 0
        self.trouble = ""
        self.start_failed = False

    def forget(self) -> None:
        """Forget the failures."""
        self.count, self.trouble = 0, ""

    def settled(self, seconds: float) -> None:
        """A child runs for so long."""
        if self.count and seconds > _SETTLED:
            self.forget()

    def pause(self) -> float:
        """Seconds to wait before the next start; 0: none."""
        return _BACKOFF[min(self.count, len(_BACKOFF)) - 1] if self.count else 0.0

    def conditions(self) -> list[tuple[str, str]]:
        """That it stays dead, for an operator."""
        if self.count < STAYS_DEAD:
            return []
        why = f"ended {self.count} times in a row: {self.trouble or 'no reason given'}"
        return [("BGP speaker", why)]
