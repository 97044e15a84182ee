"""A second event loop in a thread: for what must go on while the first one is held up.

Python gives the interpreter to a waiting thread every few milliseconds, even if the other is busy.
Tested in tests/controllers/test_leader.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class SideLoop:
    """The loop runs until the end of the `with` block; what still runs then is cancelled."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[None, None, T]) -> asyncio.Future[T]:
        """Run it there; the result is of this loop. To cancel it cancels the work."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        self._loop.run_forever()
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left))
