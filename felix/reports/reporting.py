"""Reports of felix to the datastore: a life sign, and the state of each endpoint.

The life sign is written every ReportingInterval, never while that is 0: under a key with a time to
live, and a copy under a key without one (docs/reference/data-model.md#status-keys). In a cluster of
more than `LARGE` nodes its lease is kept alive every ReportingInterval instead, and both are
written within five minutes (`libcalico.datastore.leased_values`). The states of endpoints are
written while EndpointReportingEnabled is set, at most once an EndpointReportingDelay, and compared
with the stored ones every 180 delays. An error with either is logged and never holds up the node.

Invariants:
  RPT-1  Only keys of this node are written or removed.
  RPT-2  A state is written only when the datastore has another one.
Tested in tests/felix/reports/test_reporting.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from felix.calc.hosts import interfaces_of
from felix.calc.policy_model import ANY_INTERFACE
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.interface import Change, Datastore, Delete, Put, Selection
from libcalico.datastore.leased_values import LeasedValues
from libcalico.errors import DatastoreFull, MuslinError
from libcalico.model.base.meta import now_text
from libcalico.model.keys import (
    NO_REGION,
    FelixStatusKey,
    HostEndpointStatusKey,
    StatusKey,
    WorkloadStatusKey,
)
from libcalico.model.resources.status import EndpointStatus, FelixStatus
from libcalico.process.waiting import set_within

FIRST_REPORT = 10.0
WRITE_TIMEOUT = 2.0
RESYNC_DELAYS = 180
BATCH = 100
LARGE = 500
"""Nodes above which a life sign is kept alive, and seldom written."""
UP, DOWN, ERROR = "up", "down", "error"
_FAMILIES = ("WorkloadStatus", "HostEndpointStatus")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Waiting times, in seconds; tests choose their own."""

    first_report: float = FIRST_REPORT
    timeout: float = WRITE_TIMEOUT


def region_of(config: Config) -> str:
    """The component of the keys that names the region."""
    return f"region-{config.openstack_region}" if config.openstack_region else NO_REGION


def ttl_of(config: Config) -> int:
    """Seconds for which a life sign stands."""
    return math.ceil(config.reporting_ttl)


def is_kept_alive(config: Config, nodes: int) -> bool:
    """Whether a life sign is kept by its lease in a cluster of so many nodes.

    OpenStack's reader takes each write for a heartbeat (networking-calico), so its regions get
    every one.
    """
    return nodes > LARGE and not config.openstack_region


def life_sign(
    node: str, config: Config, uptime: float, first: bool, lease: int = 0
) -> list[Change]:
    """The writes of one life sign, under this lease or (0) one of its own."""
    value = FelixStatus(time=now_text(), uptime=round(uptime, 3), first_update=first)
    region, ttl = region_of(config), 0 if lease else ttl_of(config)
    return [
        Put(FelixStatusKey(node, region), value, ttl=ttl, lease=lease),
        Put(FelixStatusKey(node, region, last=True), value),
    ]


def states(node: str, config: Config, plane: Dataplane) -> dict[StatusKey, str]:
    """The state of every endpoint of this node (docs/reference/dataplane.md#endpoint-status)."""
    reported: dict[StatusKey, str] = {}
    region, view = region_of(config), plane.view
    in_force = plane.state.in_force
    for key in plane.state.shadowed:
        endpoint = plane.calc.endpoints.get(key)
        if endpoint is not None:
            reported[WorkloadStatusKey(node, *endpoint.identity, region)] = DOWN
    for interface, endpoint in plane.state.active.items():
        link = view.link_named(interface)
        up = endpoint.key in in_force and link is not None and link.running
        reported[WorkloadStatusKey(node, *endpoint.identity, region)] = UP if up else DOWN
    hosts = interfaces_of(plane.calc.policy.host_endpoints.values(), view.host_interfaces())
    for key in hosts.idle:
        reported[HostEndpointStatusKey(node, key.name)] = ERROR
    for interface, served in hosts.serving.items():
        status_key = HostEndpointStatusKey(node, served.key.name)
        link = view.link_named(interface)
        up = interface == ANY_INTERFACE or (link is not None and link.running)
        reported[status_key] = UP if up and reported.get(status_key, UP) == UP else DOWN
    return reported


class Reports:
    """The two loops. They read `config` and `plane` anew each time."""

    def __init__(
        self,
        node: str,
        config: Callable[[], Config],
        plane: Dataplane,
        sizes: Sizes | None = None,
        sign: LeasedValues | None = None,
    ) -> None:
        self._node, self._config, self._plane = node, config, plane
        self._sizes = sizes or Sizes()
        self._configured, self._moved = asyncio.Event(), asyncio.Event()
        self._logged = self._full = ""
        self._written: dict[StatusKey, str] | None = None
        self._sign = sign or LeasedValues()

    def conditions(self) -> list[tuple[str, str]]:
        """The one error that hinders more than a report: a store too full for any write."""
        return [("datastore", self._full)] if self._full else []

    def configured(self) -> None:
        """Follow a change of the parameters."""
        self._configured.set()
        self._moved.set()

    def moved(self) -> None:
        """Follow a turn of the main loop."""
        self._moved.set()

    async def alive(self, store: Datastore) -> None:
        """Write a life sign as often as the parameters say, for ever."""
        started, first = time.monotonic(), True
        await asyncio.sleep(self._sizes.first_report)
        if is_kept_alive(self._config(), self._nodes):
            # Felixes that started together part.
            await asyncio.sleep(random.random() * self._config().reporting_interval)
        while True:
            self._configured.clear()  # before it is read: another change may come during the write
            config = self._config()
            if config.reporting_interval > 0:
                uptime = time.monotonic() - started
                first = not await self._tried(self.give(store, config, uptime, first)) and first
            await set_within(self._configured, config.reporting_interval or None)

    @property
    def _nodes(self) -> int:
        return len(self._plane.calc.nodes)

    async def give(self, store: Datastore, config: Config, uptime: float, first: bool) -> None:
        """Write a life sign, or keep the last one alive. Raises MuslinError."""
        if not (isinstance(store, Leasing) and is_kept_alive(config, self._nodes)):
            self._sign.forget()
            await store.commit(life_sign(self._node, config, uptime, first))
            return
        await self._sign.give(
            store,
            lambda lease: life_sign(self._node, config, uptime, first, lease),
            ttl_of(config),
            region_of(config),
        )

    async def endpoints(self, store: Datastore) -> None:
        """Keep the stored states of endpoints true, while the parameters ask for it."""
        resync_at, reported = 0.0, False
        while True:
            self._moved.clear()
            config = self._config()
            delay = max(config.endpoint_reporting_delay, 0.1)
            if config.endpoint_reporting_enabled and self._plane.state.applied:
                if time.monotonic() >= resync_at:
                    self._written, resync_at = None, time.monotonic() + delay * RESYNC_DELAYS
                await self._report(store, states(self._node, config, self._plane))
                reported = True
            elif reported and not config.endpoint_reporting_enabled:
                # States that are not kept up to date must not stay.
                await self._report(store, {})
                reported = self._written is None
            await asyncio.sleep(delay)
            if self._written is not None or not reported:
                await set_within(self._moved, delay * RESYNC_DELAYS)

    async def _report(self, store: Datastore, desired: Mapping[StatusKey, str]) -> None:
        if self._written is None:
            self._written = await self._stored(store)
        if self._written is None:
            return
        changes: list[Change] = [
            Put(key, EndpointStatus(status=state))
            for key, state in desired.items()
            if self._written.get(key) != state
        ]
        changes += [Delete(key) for key in self._written.keys() - desired.keys()]
        for start in range(0, len(changes), BATCH):
            if not await self._write(store, changes[start : start + BATCH]):
                self._written = None
                return
        self._written = dict(desired)

    async def _stored(self, store: Datastore) -> dict[StatusKey, str] | None:
        stored: dict[StatusKey, str] = {}
        try:
            async with asyncio.timeout(self._sizes.timeout):
                for family in _FAMILIES:
                    listing = await store.list(Selection(family, host=self._node))
                    for entry in listing.entries:
                        if isinstance(entry.key, (WorkloadStatusKey, HostEndpointStatusKey)):
                            stored[entry.key] = entry.value.status
        except (MuslinError, TimeoutError) as error:
            self._log_error(error)
            return None
        return stored

    async def _write(self, store: Datastore, changes: list[Change]) -> bool:
        return await self._tried(store.commit(changes))

    async def _tried(self, work: Awaitable[object]) -> bool:
        """Whether something with the datastore was done in time; if not, the log says why."""
        try:
            async with asyncio.timeout(self._sizes.timeout):
                await work
        except (MuslinError, TimeoutError) as error:
            self._log_error(error)
            return False
        self._logged = self._full = ""
        return True

    def _log_error(self, error: Exception) -> None:
        text = str(error) or "no answer in time"
        if isinstance(error, DatastoreFull):
            self._full = text
        if text != self._logged:
            self._logged = text
            log.warning("the status cannot be reported to the datastore: %s", text)
