"""Whether ExaBGP still lives, judged by its silence. Pure.

A frozen ExaBGP is not covered by graceful restart: the peers drop our routes when the hold
time ends. So a ping is due when nothing was heard for a sixth of the hold time, and after a
quarter of it more the child must die (BGP-3). Ticks count, not the clock: when this whole
machine stood still, ExaBGP is not to blame.

Invariant:
  BGP-3  An ExaBGP that is frozen dies before the hold time of its sessions ends.
Tested in tests/bgp/test_watchdog.py.
"""

from __future__ import annotations


class Watchdog:
    """`tick`: seconds between two looks when nothing happens."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self.reset()

    def reset(self) -> None:
        """A new child: all is well."""
        self._quiet, self._seen, self._counted = 0, 0, 0.0

    def look(self, heard: int, now: float) -> None:
        """`heard` counts what the child said so far; `now` in seconds."""
        if heard != self._seen:
            self._quiet, self._seen = 0, heard
        elif now - self._counted >= self._tick * 0.9:  # a burst of requests is no silence
            self._quiet, self._counted = self._quiet + 1, now

    def wants_ping(self, hold_time: float) -> bool:
        """Whether it is time to ask for a word."""
        return self._quiet >= self._ping_after(hold_time)

    def frozen(self, hold_time: float) -> bool:
        """Whether the silence has lasted too long."""
        patience = max(2.0, min(hold_time / 4, 20.0)) / self._tick
        return self._quiet >= self._ping_after(hold_time) + patience

    def _ping_after(self, hold_time: float) -> float:
        return max(1.0, min(hold_time / 6, 10.0)) / self._tick
