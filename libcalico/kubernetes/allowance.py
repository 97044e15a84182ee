"""How many requests may be made now, after which pause the next.

Tested in tests/libcalico/test_events.py.
"""

from __future__ import annotations


class Allowance:
    """A limit: a burst at once, then one every `every` seconds."""

    def __init__(self, burst: int, every: float, now: float) -> None:
        self._burst, self._every = burst, every
        self._left, self._at = float(burst), now

    def wait(self, now: float) -> float:
        """The seconds until the next is allowed; 0: now."""
        self._left = min(self._burst, self._left + (now - self._at) / self._every)
        self._at = now
        return max(0.0, (1.0 - self._left) * self._every)

    def spend(self, now: float) -> None:
        """Use one of the allowance."""
        self.wait(now)
        self._left -= 1.0
