"""When the endpoint status files change: a removal at once, a new file after a burst.

A file that is removed late would let a pod start; one that is written late only makes it wait.
Tested in tests/felix/reports/test_status.py.
"""

from __future__ import annotations

from felix.dataplane.loop import Dataplane
from felix.debouncer import Debouncer
from felix.reports.endpoint_status import EndpointStatus


class EndpointStatusTiming:
    """Keeps the files of `prefix` by what the main loop of `plane` has brought into force."""

    def __init__(self, plane: Dataplane, prefix: str) -> None:
        self._plane = plane
        self._status = EndpointStatus(prefix)
        self._due = Debouncer(self._write)
        self._seen_version = -1

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The files that cannot be written, as conditions."""
        return self._status.problems

    def move(self, prefix: str) -> None:
        """Keep the files under another directory from now on."""
        self._status.move(prefix)
        self._seen_version = -1

    def published(self) -> None:
        """Follow a turn of the main loop."""
        state = self._plane.state
        if state.version == self._seen_version or not state.applied:
            return
        seen, self._seen_version = self._seen_version, state.version
        if seen < 0:
            self._write()
            return
        # The news of one turn are enough where there was but one.
        news = state.news if state.version == seen + 1 else None
        self._status.remove(state.in_force, news)
        self._due.moved()

    def retry(self) -> None:
        """Write again what could not be written, where another try may help."""
        if self._status.again and self._plane.state.applied:
            self._write()

    def stop(self) -> None:
        """Remove all files, and write none afterwards."""
        self._due.stop()
        self._status.close()

    def _write(self) -> None:
        self._status.update(self._plane.state.in_force.values())
