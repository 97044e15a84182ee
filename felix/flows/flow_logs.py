"""Flow logs of one felix: on or off as the parameters say, with what is said of them.

Off is as if this room did not exist: no socket, no rule, no setting of the kernel. On, rules tell
of first packets, the kernel counts, and every interval flows go to the outputs. An interval is
`flowLogsFlushInterval`; for the aggregator, which holds 15 seconds at a time, a multiple of 15.

Invariants:
  FLG-1  With flow logs off, rules and kernel settings are what they were without this room; what
         felix had switched on it switches off.
  FLG-2  What flows lack is a number on the page of metrics, and while it goes on a condition.
Tested in tests/felix/flows/test_flow_logs.py and tests/felix/kernel/test_flows.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.flows.accounting import Accounting
from felix.flows.collector import Collector
from felix.flows.facts import CalculatedFacts
from felix.flows.joiner import Joiner, Lost
from felix.flows.outputs import Outputs, Wanted
from felix.flows.policy_counts import PolicyCounts
from felix.flows.services import ServiceFollower, ServiceTable
from felix.telling import Telling
from flows.record import INTERVAL
from libcalico.process import paths
from libcalico.process.prometheus_text import Figure, labelled
from libcalico.process.tasks import Background
from linux.errors import KernelError

RETRY = 10.0
"""Seconds until another program may have given back what felix needs."""
MARK = paths.PRIVATE / "flow-accounting"
CONTINUOUS = "Continuous"
_WORK, _SERVICES = "flow logs", "services of flow logs"
_LOSSES = {
    "packets": "first packets were not told of: connections are missing, or their counts",
    "endings": "or more ends of connections were not told of: their last packets are missing",
    "connections": "connections had no room: they have one packet each in flows",
    "flows": "flows had no room: packets are missing",
    "pending": "connections have no pending trace: there was no time for it",
}

log = logging.getLogger(__name__)


class FlowLogs:
    """The flow logs of one node. Call `configure` inside the event loop."""

    def __init__(
        self,
        node: str,
        plane: Dataplane,
        telling: Telling,
        environ: Mapping[str, str],
        mark: Path = MARK,
        outputs: Outputs | None = None,
    ) -> None:
        self.outputs = outputs or Outputs(node)
        self.lost = Lost()
        self.made = 0
        """Flows that were made so far."""
        self._telling = telling
        self._services = ServiceTable()
        self._follower = ServiceFollower(self._services, environ)
        self._facts = CalculatedFacts(plane.calc, self._services, self.lost)
        self._counts = PolicyCounts()
        self._accounting = Accounting(mark)
        self._background = Background()
        self._collector: Collector | None = None
        self._joiner: Joiner | None = None
        self._config: Config | None = None
        self._moved = asyncio.Event()
        self._reconsider = False
        self._before = asdict(self.lost)
        self._losing: list[str] = []
        self._unlisted = ""

    @property
    def on(self) -> bool:
        """Whether flows are made."""
        return self._joiner is not None

    # -- on and off ----------------------------------------------------------------------------

    def configure(self, config: Config) -> None:
        """Follow the parameters."""
        first, self._config = self._config is None, config
        asked = wanted_outputs(config)
        self.outputs.want(asked)
        if not asked:
            if self.on or first:
                self._stop()
                self._accounting.want(False)
            return
        pending = config.flow_logs_policy_evaluation_mode == CONTINUOUS
        if self._joiner is None:
            log.info("flow logs are on: every %g s", interval(config))
            self._accounting.want(True)
            self._joiner = Joiner(self._facts, self.lost, pending=pending)
            self._collector = Collector(self._joiner, self._telling)
            self._open()
            self._background.keep(_WORK, self._run)
            self._background.keep(_SERVICES, self._follower.run)
        self._reconsider |= pending and not self._joiner.pending
        self._joiner.pending = pending
        self._moved.set()

    def stop(self) -> None:
        """Felix ends; rules and the kernel's counting stay as they are."""
        self._stop()
        self.outputs.stop()

    def _stop(self) -> None:
        if self.on:
            log.info("flow logs are off")
        self._background.stop()
        if self._collector is not None:
            self._collector.close()
        self._collector = self._joiner = None
        self._losing, self._unlisted = [], ""

    def changed(self) -> None:
        """Note that the calculation may say something else now."""
        if self.on:
            self._reconsider = True
            self._facts.changed()

    # -- the work ------------------------------------------------------------------------------

    def _open(self) -> None:
        assert self._collector is not None
        try:
            self._collector.open()
        except KernelError as error:
            if self._collector.problem != str(error):
                log.warning("flow logs: %s", error)
            self._collector.problem = str(error)

    async def _run(self) -> None:
        """Make flows until cancelled."""
        assert self._config is not None
        began = int(time.time())
        while True:
            assert self._collector is not None
            if self._collector.problem:
                await asyncio.sleep(RETRY)
                self._open()
                began = int(time.time())
                continue
            now = time.time()
            # Wall-clock time, so that the intervals of all nodes are the same.
            period = interval(self._config)
            if began - now > period:
                began = int(now)  # the clock was set back
            due = (math.floor(max(now, began) / period) + 1) * period
            self._moved.clear()
            try:
                async with asyncio.timeout(due - now):
                    await self._moved.wait()
                continue
            except TimeoutError:
                pass
            end = int(due)
            if began < end and await self._flush(began, end):
                began = end

    async def _flush(self, start: int, end: int) -> bool:
        """Hand on the flows of an interval; returns whether there are any of it still to come."""
        collector = self._collector
        assert collector is not None
        reconsider, self._reconsider = self._reconsider, False
        pending = self.lost.pending
        try:
            flows = await collector.flows(start, end, reconsider=reconsider)
        except KernelError as error:
            self._reconsider |= reconsider
            if not self._unlisted:
                log.warning("flow logs: %s", error)
            self._unlisted = str(error)
            return False
        self._unlisted = ""
        # What there was no time for is tried again.
        self._reconsider |= self.lost.pending > pending
        self.made += len(flows)
        self._counts.add(flows)
        await self.outputs.offer(flows)
        self._look_at_losses()
        return True

    def _look_at_losses(self) -> None:
        now, before = asdict(self.lost), self._before
        losing = [f"{now[what] - before[what]} {_LOSSES[what]}" for what in now
                  if now[what] > before[what]]  # fmt: skip
        if losing and not self._losing:
            log.warning("flow logs: %s", "; ".join(losing))
        self._losing, self._before = losing, now

    # -- what is said of it ----------------------------------------------------------------------

    def conditions(self) -> list[tuple[str, str]]:
        """What keeps flows from being whole, or from where they should go."""
        if not self.on:
            return []
        assert self._collector is not None
        troubles = [self._collector.problem, self._accounting.problem, self._unlisted]
        return [
            *((_WORK, trouble) for trouble in troubles if trouble),
            *((_WORK, f"in the last interval {lack}") for lack in self._losing),
            *self._background.conditions(),
            *self.outputs.conditions(),
        ]

    def figures(self) -> Iterator[Figure]:
        """The metrics; none while flow logs are off."""
        if self._joiner is None:
            return
        name = "muslin_felix_flows"
        yield Figure(f"{name}_total", "Flows made.", self.made, "counter")
        yield Figure(f"{name}_connections", "Connections held for them.", len(self._joiner))
        lost = {**asdict(self.lost), "sent": self.outputs.lost}
        samples = (({"what": what}, count) for what, count in lost.items())
        yield from labelled(f"{name}_lost_total", "What flows lack, by kind.", samples, "counter")
        yield from self._counts.figures()


def wanted_outputs(config: Config) -> Wanted:
    """The outputs that the parameters name."""
    server = config.flow_logs_goldmane_server
    return Wanted(
        server,
        config.typha_ca_file if server else "",
        config.typha_cert_file if server else "",
        config.typha_key_file if server else "",
        config.flow_logs_local_reporter == "Enabled",
    )


def interval(config: Config) -> float:
    """Seconds of one interval: as configured, for the aggregator a multiple of its 15 seconds."""
    seconds = config.flow_logs_flush_interval
    if not config.flow_logs_goldmane_server:
        return seconds
    return INTERVAL * math.ceil(seconds / INTERVAL)
