"""Tasks whose failure is always heard of.

Problem: asyncio tells of a task's exception when the task object is collected. A background task
is referenced by its owner, so its failure is told late or never, and what it did is not done any
more. Every task is therefore started here, in one of three ways; `./run lint` finds the others
(an `asyncio.TaskGroup`, which raises by itself, is the fourth).

Invariants:
  TSK-1  An exception that no code has taken `UNTAKEN` seconds after it is logged, with the name
         of the task.
  TSK-2  What must go on (`Background`) begins again after every failure, later each time; until
         it works, the reason is a condition.
  TSK-3  Work beside a body (`beside`) ends with it, and its failure ends the body.
Tested in tests/libcalico/test_tasks.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import TypeVar

from libcalico.process.backoff import Backoff

UNTAKEN = 1.0
LASTED = 10.0
"""Seconds after which work that was begun again counts as working."""

T = TypeVar("T")

log = logging.getLogger(__name__)

_running: set[asyncio.Task[object]] = set()


def start(work: Coroutine[object, object, T], name: str) -> asyncio.Task[T]:
    """Start a task of this name; it runs to its end even if its creator forgets it (TSK-1)."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[object]) -> None:
    _running.discard(task)
    if _untaken(task):
        # A task that waits for this one takes the exception within this turn of the loop, or soon.
        task.get_loop().call_later(UNTAKEN, _tell, task)


def _untaken(task: asyncio.Task[object]) -> bool:
    # asyncio's own mark, by which it decides whether to complain when the task is collected.
    return bool(getattr(task, "_log_traceback", False))


def _tell(task: asyncio.Task[object]) -> None:
    if _untaken(task):
        error = task.exception()
        log.error("%s has failed: %r", task.get_name(), error, exc_info=error)


async def ended(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Wait until all of these tasks have ended, and retrieve their exceptions.

    `asyncio.gather` would leave a future behind whose exception is never retrieved, when the caller
    is cancelled in the turn in which the last task ends; this does not.
    """
    tasks = tuple(tasks)
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def together(works: Iterable[Coroutine[object, object, object]], name: str) -> None:
    """Run all of these at once, to the end; raises what the first failed one raised.

    When it is cancelled, it cancels them and waits for their end.
    """
    tasks = [start(work, name) for work in works]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await ended(tasks)
        raise
    for task in tasks:
        task.result()


class Background:
    """The background work of one component (TSK-2). Use inside a running event loop."""

    def __init__(
        self, backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 30.0), lasted: float = LASTED
    ) -> None:
        self._backoff, self._lasted = backoff, lasted
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}

    def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run this until it returns, again after each failure; nothing if it is running already."""
        if not self.busy(name):
            self._tasks[name] = start(self._keep(name, work), name)

    def busy(self, name: str) -> bool:
        """Whether this work is running, or waits to begin again."""
        task = self._tasks.get(name)
        return task is not None and not task.done()

    async def _keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        backoff, loop = self._backoff(), asyncio.get_running_loop()
        while True:
            began = loop.time()
            mark = loop.call_later(self._lasted, self._problems.pop, name, None)
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - told, and done again
                if loop.time() - began >= self._lasted:
                    backoff.reset()
                self._failed(name, error)
            else:
                self._problems.pop(name, None)
                return
            finally:
                mark.cancel()
            await backoff.wait()

    def _failed(self, name: str, error: Exception) -> None:
        reason = str(error) or repr(error)
        if self._problems.get(name) != reason:
            self._problems[name] = reason
            # A defect of ours shows where it is; what the system refused is a sentence.
            trace = error if isinstance(error, (RuntimeError, LookupError, TypeError)) else None
            log.warning("%s failed and is tried again: %s", name, reason, exc_info=trace)

    def conditions(self) -> list[tuple[str, str]]:
        """(work, reason) for each work whose last attempt failed."""
        return [(name, f"failed and is tried again: {why}") for name, why in self._problems.items()]

    def cancel(self, name: str) -> None:
        """Stop this work, and drop its condition."""
        self._problems.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Stop all work."""
        for name in list(self._tasks):
            self.cancel(name)


class beside:
    """`async with beside(work, ...)`: the works run while the body does (TSK-3).

    A work that fails cancels the body and its exception is raised; one that returns is just done.
    At the end of the body the works are cancelled, and awaited.
    """

    def __init__(self, *works: Coroutine[object, object, object], name: str = "") -> None:
        self._works, self._name = works, name
        self._tasks: list[asyncio.Task[object]] = []
        self._error: BaseException | None = None
        self._ending = False

    async def __aenter__(self) -> list[asyncio.Task[object]]:
        body = asyncio.current_task()
        assert body is not None
        self._body = body
        self._requests = body.cancelling()
        for work in self._works:
            task = start(work, self._name or getattr(work, "__qualname__", "work"))
            self._tasks.append(task)
            task.add_done_callback(self._ended)
        return self._tasks

    def _ended(self, task: asyncio.Task[object]) -> None:
        if task.cancelled() or (error := task.exception()) is None or self._error is not None:
            return
        self._error = error
        if not self._ending:
            self._body.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupted, self._ending = self._error is not None, True
        for task in self._tasks:
            task.cancel()
        try:
            await ended(self._tasks)
        except asyncio.CancelledError:
            # Our own, if the body came to its end before it met it.
            if not interrupted:
                raise
            await ended(self._tasks)
        asked_to_end = interrupted and self._body.uncancel() > self._requests
        if self._error is None:
            return
        if interrupted and not asked_to_end and kind in (None, asyncio.CancelledError):
            raise self._error
        log.info("%s failed, too: %r", self._name or "work beside it", self._error)
