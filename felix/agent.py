"""One felix: the datastore, the sockets and the main loop, put together.

Its tasks share one event loop. If one of them ends, felix ends, and its supervisor starts it again.
At an orderly end the kernel's tables stay as they are, so a restart is not felt.
Tested in tests/felix/kernel/test_forwarding.py, test_restart.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from felix.calc.graph import Calculator, selections
from felix.calc.learned_routes import PathTable
from felix.config.effective import EffectiveConfig
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.flows.flow_logs import MARK, FlowLogs
from felix.node_server import NodeServer
from felix.reports import metrics
from felix.reports.audit import Audit
from felix.reports.endpoint_status_timing import EndpointStatusTiming
from felix.reports.heartbeats import Heartbeats, beating
from felix.reports.reporting import Reports
from felix.reports.status import StatusFile
from felix.reports.status_document import describe
from felix.servers import Servers
from felix.store.ingest import EndpointRows
from felix.store.ownerless_blocks import start_blocks
from felix.store.service_reader import ServiceReader
from felix.store.stored_objects import StoredObjects
from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.capabilities import Deferring
from libcalico.datastore.interface import Datastore
from libcalico.datastore.syncer import Sink, SyncBatch, Syncer
from libcalico.errors import MuslinError
from libcalico.model import ResourceKey, WorkloadEndpoint
from libcalico.process import malloc_trim, paths, prometheus_text
from linux import programs

STATUS_INTERVAL = 10.0
LINGER = 0.025
"""Seconds, while no client waits for the kernel."""
COLLECTOR = (5_000, 20, 20)
"""Thresholds of the garbage collector once the snapshot is frozen: seldom, and short."""
RESTART_STATUS = 129
"""The exit status when a changed parameter asks for a new start, as Calico's has it."""

OpenStore = Callable[[DatastoreConfig], Awaitable[Datastore]]
"""Opens the datastore that a configuration names; the simulation has its own."""

log = logging.getLogger(__name__)


class RestartNeeded(MuslinError):
    """A parameter changed that a running felix cannot follow."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of felix's files; tests choose their own."""

    node_socket: Path = paths.NODE_SOCKET
    config: Path = paths.FELIX_CONFIG
    status: Path = paths.STATUS
    last_readable: Path = paths.LAST_READABLE
    flow_accounting: Path = MARK


class Agent:
    """Felix of one node. `open_store` gives its datastore."""

    def __init__(
        self,
        node: str,
        environ: Mapping[str, str],
        where: Paths | None = None,
        open_store: OpenStore = connect,
    ) -> None:
        where = where or Paths()
        self.node, self._node_socket = node, where.node_socket
        self._open_store: Callable[[], Awaitable[Datastore]] = lambda: open_store(
            apiconfig.of_node(environ)
        )
        self.calc = Calculator(node)
        self.configuration = EffectiveConfig(
            node, environ, where.config, self.calc.felix_configurations
        )
        self.objects = StoredObjects(self.calc, self.configuration, where.last_readable)
        self.dataplane = Dataplane(self.calc, PathTable(), self.config, self._published)
        self.calc.on_blocks = self.dataplane.kick
        self.dataplane.linger = self._linger
        self.server = NodeServer(node, self.dataplane, environ, where.flow_accounting, where.status)
        # Without a speaker the routes to other nodes come from the datastore.
        self.networking = environ.get("CALICO_NETWORKING_BACKEND", "") or "bird"
        self.dataplane.links.tunnels.told = self.networking == "bird"
        self._beats = Heartbeats()
        self._taken = metrics.Taken()
        programs.WAITED.told = self._taken.programs.observe
        self.audit = Audit(self.dataplane)
        self.servers = Servers(self._beats.all, self._metrics_page)
        prefix = self.config.endpoint_status_path_prefix
        self.endpoint_status = EndpointStatusTiming(self.dataplane, prefix)
        self._status = StatusFile(where.status)
        self.reports = Reports(node, lambda: self.config, self.dataplane)
        self.services = ServiceReader(self.calc.policy, environ, self.dataplane.kick)
        self.syncer: Syncer | None = None
        self._store: Datastore | None = None
        rows = EndpointRows(self.calc, self._put_own, self.dataplane.kick_some)
        self.sinks: Mapping[str, Sink] = {"WorkloadEndpoint": rows}

    @property
    def flow_logs(self) -> FlowLogs:
        """The flow logs of this node."""
        return self.server.flow_logs

    @property
    def config(self) -> Config:
        """The parameters in force."""
        return self.configuration.current

    async def run(self) -> int:
        """Run until cancelled; an exception says what could not go on."""
        await self.servers.apply(self.config)
        await self.objects.readable.open()
        store = await self._open_store()
        self.echoes_wait(store)
        self._store = store
        self.syncer = Syncer(
            store,
            selections(),
            sinks=self.sinks,
            resident=True,
            on_connection=self._status.changed,
        )
        await self.server.start(self._node_socket)
        self.flow_logs.configure(self.config)
        self.server.questions_afar.follow(self.config)
        self._beats.started(self.config)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.dataplane.run(self._beats.main_loop.alive))
                group.create_task(self._follow(self.syncer))
                group.create_task(self._report())
                group.create_task(self._revert_unconfirmed())
                group.create_task(self.objects.readable.run())
                group.create_task(self.audit.run())
                group.create_task(self.services.run())
                group.create_task(self.reports.alive(store))
                group.create_task(self.reports.endpoints(store))
                group.create_task(malloc_trim.give_back())
        finally:
            self.endpoint_status.stop()
            self.objects.readable.close()
            await self.server.stop()
            await self.servers.stop()
            await store.close()
        return 0

    def echoes_wait(self, store: Datastore) -> None:
        """Let the store hold back what it says of an endpoint whose offer is being answered.

        All other events wait with it, 50 ms at most (libcalico.datastore.etcd.stream). A store that
        cannot wait reports at once.
        """
        if isinstance(store, Deferring):
            self.server.offers.on_offer = store.hold

    async def _follow(self, syncer: Syncer) -> None:
        async for batch in beating(syncer.batches(), self._beats.calculation.alive):
            await self.apply_batch(batch)

    async def apply_batch(self, batch: SyncBatch) -> None:
        """Put a batch of the syncer into the calculation; wake the data plane if it matters."""
        began = time.monotonic()
        changed = await self.objects.apply(batch.updates)
        self._taken.add(len(batch.updates), time.monotonic() - began)
        self.flow_logs.changed()
        self.services.want(self.calc.policy.names_services)
        reconfigure = self.configuration.stale
        if batch.in_sync and not self.calc.in_sync:
            await self.services.first()
            await self.objects.recall()
            await start_blocks(self.calc.blocks, self._store)
            self.calc.in_sync = changed = reconfigure = True
            # Objects of the snapshot live long: the collector need not walk them again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*COLLECTOR)
            log.info("the datastore has been read")
            if not self.calc.ready:
                log.warning("the datastore is not ready: ClusterInformation says so or lacks")
        if reconfigure:
            changed |= await self._reconfigure()
            self._status.changed()
        if changed:
            self.dataplane.kick()

    def _put_own(self, key: ResourceKey, value: WorkloadEndpoint | None, revision: int) -> None:
        """An endpoint of this node (felix.store.ingest): it comes as a row, not in a batch."""
        if self.objects.put(key, value, revision):
            self.dataplane.kick_some()

    async def _revert_unconfirmed(self) -> None:
        while True:
            changed = await self.objects.revert_unconfirmed()
            self.services.want(self.calc.policy.names_services)
            if changed:
                self.dataplane.kick()

    async def _reconfigure(self) -> bool:
        """Put the parameters in force as they are now; returns whether any is another.

        Raises `RestartNeeded`.
        """
        config = self.configuration.resolve()
        if config == self.config:
            return False
        if self.dataplane.rules.prepared and (changed := self.configuration.restart_for(config)):
            raise RestartNeeded(f"changed: {', '.join(changed)}")
        self.configuration.current = self.dataplane.config = config
        self.dataplane.view.global_settings = True
        self.endpoint_status.move(config.endpoint_status_path_prefix)
        self.dataplane.view.prefixes = config.interface_prefix
        self._beats.configure(config)
        await self.servers.apply(config)
        self.reports.configured()
        self.flow_logs.configure(config)
        self.server.questions_afar.follow(config)
        return True

    def _linger(self) -> float:
        """Seconds that an event may wait, so that all events of a new pod make one turn."""
        return 0.0 if self.server.waits_for_links or not self.calc.in_sync else LINGER

    def _published(self) -> None:
        state = self.dataplane.state
        reading = "" if self.calc.in_sync else "reading the datastore"
        self._beats.calculation.state(not reading, reading)
        missing = "" if state.applied else "not yet programmed"
        if self.config.require_mtu_file and self.dataplane.links.mtu.problem:
            missing = f"the MTU file: {self.dataplane.links.mtu.problem}"
        self._beats.main_loop.state(not missing, missing)
        # The clients that wait for an answer come first.
        self.server.publish()
        self.flow_logs.changed()
        self.endpoint_status.published()
        self._status.changed()
        self.reports.moved()

    async def _report(self) -> None:
        while True:
            self._beats.status.alive()
            self.endpoint_status.retry()
            self._status.write(describe(self))
            await self._status.wait(STATUS_INTERVAL)

    def _metrics_page(self) -> bytes:
        known = self.syncer.known() if self.syncer is not None else {}
        figures = [
            *metrics.figures(self.dataplane, known, self._taken, self.audit),
            *metrics.of_datastore(self.syncer),
            *self.flow_logs.figures(),
            *metrics.of_unreadable(self.objects.readable.unreadable),
        ]
        return prometheus_text.page(figures, process=self.config.prometheus_process_metrics_enabled)
