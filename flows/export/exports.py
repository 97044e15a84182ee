"""What is complete goes to each export; one that fails loses flows, which are counted.

An export writes in a thread, so that a slow disk or collector holds up no call.
Tested in tests/flows/test_json_lines.py and tests/flows/test_otlp.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from flows.aggregate.buckets import Bucket
from flows.record import Flow
from libcalico.errors import MuslinError

log = logging.getLogger(__name__)


class Export(Protocol):
    """One way out. `write` and `close` raise OSError or MuslinError."""

    name: str

    def write(self, flows: Sequence[Flow]) -> None:
        """Write these flows, in any thread, one call at a time."""

    def close(self) -> None:
        """Write what waits."""


class Exports:
    """All ways out."""

    def __init__(self, exports: Sequence[Export]) -> None:
        self._exports = exports
        self._lost: dict[str, int] = {}
        self._failing: set[str] = set()

    async def write(self, bucket: Bucket) -> None:
        """Write the flows of a bucket that is complete."""
        if not self._exports or not len(bucket):
            return
        flows = [seen.flow for seen in bucket.seen()]
        for export in self._exports:
            try:
                await asyncio.to_thread(export.write, flows)
            except (OSError, MuslinError) as error:
                self._lost[export.name] = self._lost.get(export.name, 0) + len(flows)
                if export.name not in self._failing:
                    log.error("flows are lost for the export %s: %s", export.name, error)
                self._failing.add(export.name)
            else:
                self._failing.discard(export.name)

    def lost(self) -> dict[str, int]:
        """Flows that were lost since the last call, by export."""
        lost, self._lost = self._lost, {}
        return lost

    def close(self) -> None:
        """End every export."""
        for export in self._exports:
            try:
                export.close()
            except (OSError, MuslinError) as error:
                log.error("the export %s did not end well: %s", export.name, error)


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
