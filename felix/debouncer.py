"""Work that waits until a burst of events is over, but not for ever.

Tested in tests/felix/reports/test_status.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET, LATEST = 0.15, 1.0


class Debouncer:
    """Calls `act` after `quiet` seconds without an event, or `latest` after the first event."""

    def __init__(
        self, act: Callable[[], None], quiet: float = QUIET, latest: float = LATEST
    ) -> None:
        self._act, self._quiet, self._latest = act, quiet, latest
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._last = 0.0

    def moved(self) -> None:
        """Note an event. Call it inside a running event loop."""
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._timer is None:
            self._first = self._last
            self._timer = loop.call_later(self._quiet, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = min(self._last + self._quiet, self._first + self._latest)
        if loop.time() < due:
            self._timer = loop.call_at(due, self._look)
            return
        self._timer = None
        self._act()

    def stop(self) -> None:
        """Drop what is due, and never call `act` again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
