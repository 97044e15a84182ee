"""Where the time of a call goes: named stages in milliseconds, kept and exported.

The last traces stand in the status file; sums, counts and quantiles per stage are metrics, read by
`./run bench cni`. Taking a mark costs about a microsecond.
Tested in tests/cni/test_daemon_add.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypedDict

from libcalico.process.counters import REGISTRY, Counter, Gauge
from libcalico.process.prometheus_text import Figure
from libcalico.process.summaries import Summary


class Stages:
    """A summary by command and stage."""

    name = "calico_cni_stage_seconds"

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Summary] = {}

    def observe(self, command: str, stage: str, seconds: float) -> None:
        """Count one more."""
        summary = self._known.get((command, stage))
        if summary is None:
            summary = self._known[command, stage] = Summary()
        summary.observe(seconds)

    def figures(self) -> Iterator[Figure]:
        """For the page."""
        meaning = "Time of one stage of a CNI call"
        yield Figure(self.name, meaning, 0, "summary", typed=True)
        for (command, stage), summary in list(self._known.items()):
            labels = {"command": command, "stage": stage}
            yield summary.figure(self.name, meaning, labels)


STAGES = Stages()
REGISTRY.add(STAGES)
CALLS = Counter("calico_cni_calls", "CNI calls by command and result code", ["command", "code"])
IN_FLIGHT = Gauge("calico_cni_in_flight", "CNI calls that are being served")
PENDING = Gauge("calico_cni_pending_deletes", "DELs that wait for the datastore")
TRANSACTIONS = Gauge("calico_cni_ipam_transactions", "Datastore transactions of the allocator")
RESTORED = Gauge(
    "calico_cni_ipam_claims_restored", "Claims and blocks that were deleted, and written again"
)

KEPT = 50


class TraceSummary(TypedDict):
    """A trace in the status file, times in milliseconds."""

    command: str
    subject: str
    total_ms: float
    stages: dict[str, float]


class Trace:
    """The stages of one call, in order."""

    __slots__ = ("_last", "_later", "began", "code", "command", "stages", "subject")

    def __init__(self, command: str, subject: str = "") -> None:
        self.command, self.subject = command, subject
        self.code = 0
        self.stages: list[tuple[str, float]] = []
        self._later: list[Callable[[], None]] = []
        self.began = self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        """End a stage; it began where the one before ended."""
        now = time.perf_counter()
        self.stages.append((stage, now - self._last))
        self._last = now

    def afterwards(self, work: Callable[[], None]) -> None:
        """Do this once the answer has left, so that no caller waits for a log line."""
        self._later.append(work)

    def finish(self) -> None:
        """Do the deferred work: the answer has left, or could not."""
        later, self._later = self._later, []
        for work in later:
            work()

    @property
    def total(self) -> float:
        """Seconds from the beginning to the last mark."""
        return self._last - self.began

    def summary(self) -> TraceSummary:
        """The trace for the status file, in milliseconds."""
        return {
            "command": self.command,
            "subject": self.subject,
            "total_ms": round(self.total * 1000, 3),
            "stages": {name: round(seconds * 1000, 3) for name, seconds in self.stages},
        }


class Traces:
    """The last traces of the process."""

    def __init__(self) -> None:
        self._kept: deque[Trace] = deque(maxlen=KEPT)

    def record(self, trace: Trace) -> None:
        """Keep and count the trace of a finished call."""
        trace.finish()
        self._kept.append(trace)
        CALLS.inc(trace.command, str(trace.code))
        for name, seconds in trace.stages:
            STAGES.observe(trace.command, name, seconds)
        STAGES.observe(trace.command, "total", trace.total)

    def summaries(self) -> list[TraceSummary]:
        """The last traces, newest last."""
        return [trace.summary() for trace in self._kept]
