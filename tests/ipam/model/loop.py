"""An event loop that runs only when told, in a time of its own.

`drain()` runs everything that is ready and stops; `advance()` jumps to the next timer. No
clock, no socket: the same choices always give the same run.
"""

from __future__ import annotations

import asyncio
from asyncio import base_events, events
from typing import Any

EPOCH = 1_800_000_000_000_000_000


class _NoSelector:
    """Nothing ever comes from outside."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class StepLoop(base_events.BaseEventLoop):
    """Deterministic: ready callbacks in their order, timers by their time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._now = 1000.0
        self._clock_resolution = 1e-6
        self.failed: list[BaseException] = []
        self.set_exception_handler(self._unexpected)

    def _unexpected(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if "never retrieved" not in context["message"] or isinstance(error, AssertionError):
            self.failed.append(error)

    def time(self) -> float:
        """Seconds of the model."""
        return self._now

    def time_ns(self) -> int:
        """The same as a wall clock in nanoseconds."""
        return EPOCH + int(self._now * 1e9)

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def drain(self) -> None:
        """Run until nothing is ready."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._ready:  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(before)
        if self.failed:
            raise self.failed.pop(0)

    def advance(self) -> bool:
        """Let time pass until the next timer fires; False if there is none."""
        timers = [h for h in self._scheduled if not h.cancelled()]  # type: ignore[attr-defined]
        if not timers:
            return False
        self._now = max(self._now, min(handle.when() for handle in timers))
        self._ready.append(events.Handle(lambda: None, (), self))  # type: ignore[attr-defined]
        self.drain()
        return True

    def start(self, coroutine: Any) -> asyncio.Task[Any]:
        """A task of this loop."""
        return self.create_task(coroutine)
