"""What is complete goes to each export; one that fails or is slow loses flows, which are counted.

Each export has a queue and a thread of its own, so that a slow disk or collector holds up neither
calls nor the other exports.

Invariants:
  FLW-5  A flow that was to be exported is written, waits (`WAITING` buckets at most), or is
         counted as lost.
Tested in tests/flows/test_exports.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from flows.aggregate.buckets import Bucket
from flows.record import Flow
from libcalico.errors import MuslinError
from libcalico.process.tasks import together

log = logging.getLogger(__name__)

WAITING = 20
"""Buckets of 15 seconds that wait for an export; then new ones are lost."""


class Export(Protocol):
    """One way out. `write` and `close` raise OSError or MuslinError."""

    name: str

    def write(self, flows: Sequence[Flow]) -> None:
        """Write these flows, in any thread, one call at a time."""

    def close(self) -> None:
        """Give back what is held; no `write` comes after that."""


class _Worker:
    def __init__(self, export: Export) -> None:
        self.export = export
        self.queue: asyncio.Queue[Bucket] = asyncio.Queue(WAITING)
        self.lost = 0
        self.problem = ""
        self._counting = threading.Lock()
        self._taken = 0
        """Flows that were taken from the queue, and that no thread has begun to write."""

    def offer(self, bucket: Bucket) -> None:
        try:
            self.queue.put_nowait(bucket)
        except asyncio.QueueFull:
            self._lose(len(bucket), f"{WAITING} intervals wait to be written")

    def _lose(self, number: int, problem: str) -> None:
        with self._counting:
            self.lost += number
        if not self.problem:
            log.error("flows are lost for the export %s: %s", self.export.name, problem)
        self.problem = problem

    async def run(self) -> None:
        while True:
            bucket = await self.queue.get()
            flows = [seen.flow for seen in bucket.seen()]
            self._taken = len(flows)
            try:
                await asyncio.to_thread(self._write, flows)
            finally:
                self.queue.task_done()

    def _write(self, flows: Sequence[Flow]) -> None:
        """Write them in a thread, which counts also when `run` was cancelled meanwhile."""
        self._taken = 0
        try:
            self.export.write(flows)
            self.problem = ""
        except (OSError, MuslinError) as error:
            self._lose(len(flows), str(error))

    def close(self) -> None:
        waiting, self._taken = self._taken, 0
        while not self.queue.empty():
            waiting += len(self.queue.get_nowait())
        if waiting:
            self.problem = ""  # so that it is told, also after another problem
            self._lose(waiting, f"it ends, and {waiting} flows that waited are lost")
        try:
            self.export.close()
        except (OSError, MuslinError) as error:
            log.error("the export %s did not end well: %s", self.export.name, error)


class Exports:
    """All ways out."""

    def __init__(self, exports: Sequence[Export]) -> None:
        self._workers = [_Worker(export) for export in exports]

    def offer(self, buckets: Sequence[Bucket]) -> None:
        """Take buckets that are complete; returns at once."""
        for bucket in buckets:
            for worker in self._workers:
                worker.offer(bucket)

    async def run(self) -> None:
        """Write until cancelled."""
        if self._workers:
            await together((worker.run() for worker in self._workers), "exports of flows")

    async def written(self) -> None:
        """Wait until nothing waits any more."""
        for worker in self._workers:
            await worker.queue.join()

    @property
    def problems(self) -> dict[str, str]:
        """Why flows are lost now, by export."""
        return {one.export.name: one.problem for one in self._workers if one.problem}

    def lost(self) -> dict[str, int]:
        """Flows that were lost so far, by export."""
        return {one.export.name: one.lost for one in self._workers}

    def close(self) -> None:
        """End every export; what waits is lost, and counted."""
        for worker in self._workers:
            worker.close()


def opened(file: str, most_bytes: int, files: int, otlp: str) -> Exports:
    """The exports that are asked for. Raises MuslinError where one cannot be begun."""
    exports: list[Export] = []
    if file:
        from flows.export.json_lines import JSONLines

        exports.append(JSONLines(file, most_bytes, files))
    if otlp:
        from flows.export.otlp import OTLP

        exports.append(OTLP(otlp))
    return Exports(exports)
