"""One felix: the datastore, the sockets and the main loop, put together.

Tasks of one event loop: follow the datastore, run the main loop, write the status file. If
one of them ends, felix ends (its supervisor starts it again); at an orderly end the kernel's
tables stay as they are, so a restart is not felt.
Tested in tests/felix/kernel/test_forwarding.py, test_restart.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from felix.calc.commit_confirmed import Unconfirmed
from felix.calc.graph import Calculator, selections
from felix.calc.learned_routes import PathTable
from felix.calc.standing import NEWEST
from felix.config.parameters import PARAMETERS, Config
from felix.config.resolve import Resolved, read_file, resolve
from felix.dataplane.loop import Dataplane
from felix.debouncer import Debouncer
from felix.node_server import NodeServer
from felix.reports import metrics
from felix.reports.audit import Audit
from felix.reports.conditions import of_dataplane
from felix.reports.endpoint_status import EndpointStatus
from felix.reports.heartbeats import Heartbeats, beating
from felix.reports.reporting import Reports
from felix.reports.status import StatusFile
from felix.servers import Servers
from felix.store.ingest import EndpointRows
from felix.store.readable import Readable
from felix.store.service_reader import ServiceReader
from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore, Deferring
from libcalico.datastore.syncer import Sink, SyncBatch, Syncer, Update
from libcalico.errors import MuslinError
from libcalico.model import Key, ResourceKey, WorkloadEndpoint
from libcalico.model.enforcement.lacking import Lacking
from libcalico.process import paths
from libcalico.process.logs import level_number

STATUS_INTERVAL = 10.0
LINGER = 0.025
"""Seconds, while nobody waits for the kernel."""
_SETTINGS = "FelixConfiguration"
COLLECTOR = (5_000, 20, 20)
"""Thresholds of the garbage collector once the snapshot is frozen: seldom, and short."""
RESTART_STATUS = 129
"""What the process ends with when a changed parameter asks for a new start, as Calico's does."""

OpenStore = Callable[[DatastoreConfig], Awaitable[Datastore]]
"""What gives the datastore that a configuration names; the simulation has its own."""

log = logging.getLogger(__name__)


def _ours(key: Key, value: Any, node: str) -> bool:
    """Whether this felix names what an object asks for in vain (policies say it themselves)."""
    match key:
        case ResourceKey(kind="WorkloadEndpoint"):
            return bool(value.spec.node == node)
        case ResourceKey(kind="IPPool"):
            return True
    return False


class RestartNeeded(MuslinError):
    """A parameter changed that a running felix cannot follow."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where felix's files lie; tests choose their own."""

    node_socket: Path = paths.NODE_SOCKET
    config: Path = paths.FELIX_CONFIG
    status: Path = paths.STATUS
    last_readable: Path = paths.LAST_READABLE


class Agent:
    """Felix of one node. `open_store` gives its datastore."""

    def __init__(
        self,
        node: str,
        environ: Mapping[str, str],
        where: Paths | None = None,
        open_store: OpenStore = connect,
    ) -> None:
        self.node, self._environ, self._where = node, environ, where or Paths()
        self._open_store = open_store
        self.calc = Calculator(node)
        self._log_level = logging.getLogger().level
        self._told_problems: set[str] = set()
        self._problems: list[str] = []
        self._lacking = Lacking(log)
        self._unconfirmed = Unconfirmed(time.monotonic, lambda: datetime.now(UTC))
        self._readable = Readable(self._where.last_readable)
        self._deadlines = asyncio.Event()
        self._labels: Mapping[str, str] = {}
        self._unreadable: dict[Key, str] = {}
        self.config = self._configure()
        self.server = NodeServer(node)
        self.dataplane = Dataplane(self.calc, PathTable(), self.config, self._published)
        self.dataplane.linger = self._linger
        # Without a speaker nobody tells this node ways: the datastore does.
        self.networking = environ.get("CALICO_NETWORKING_BACKEND", "") or "bird"
        self.dataplane.links.tunnels.told = self.networking == "bird"
        self._beats = Heartbeats()
        self._taken = metrics.Taken()
        self._audit = Audit(self.dataplane)
        self._servers = Servers(self._beats.all, self._metrics_page)
        self._endpoint_status = EndpointStatus(self.config.endpoint_status_path_prefix)
        self._files_due = Debouncer(self._write_files)
        self._status = StatusFile(self._where.status)
        self._reports = Reports(node, lambda: self.config, self.dataplane)
        self._services = ServiceReader(self.calc.policy, environ, self.dataplane.kick)
        self._seen_version = -1
        self._syncer: Syncer | None = None
        rows = EndpointRows(self.calc, self._take_own, self.dataplane.kick_some)
        self.sinks: Mapping[str, Sink] = {"WorkloadEndpoint": rows}

    def _configure(self) -> Config:
        resolved = self._resolve()
        for problem in resolved.problems:
            text = str(problem)
            if text not in self._told_problems:
                self._told_problems.add(text)
                # Calico has some 190 parameters; those of a later step are no mistake.
                worry = logging.INFO if problem.unknown else logging.WARNING
                log.log(worry, "configuration: %s", text)
        self._problems = [str(problem) for problem in resolved.problems if not problem.unknown]
        level = self._log_level
        if "log_severity_screen" in resolved.origins:
            level = level_number(resolved.config.log_severity_screen)
        logging.getLogger().setLevel(level)
        return resolved.config

    def _resolve(self) -> Resolved:
        try:
            text = read_file(self._where.config)
        except OSError as error:
            log.warning("%s cannot be read: %s", self._where.config, error)
            text = ""
        stored = self.calc.felix_configurations
        return resolve(
            self.node,
            environ=self._environ,
            file_text=text,
            stored=stored,
            labels=self._labels,
        )

    async def run(self) -> int:
        """Run until cancelled; an exception says what could not go on."""
        await self._servers.apply(self.config)
        await self._readable.open()
        store = await self._open_store(apiconfig.of_node(self._environ))
        self.echoes_wait(store)
        self._syncer = Syncer(
            store,
            selections(self.node),
            sinks=self.sinks,
            resident=True,
            on_connection=self._status.changed,
        )
        await self.server.start(self.dataplane, self._where.node_socket)
        self._beats.started(self.config)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.dataplane.run(self._beats.main_loop.alive))
                group.create_task(self._follow(self._syncer))
                group.create_task(self._report(self._syncer))
                group.create_task(self._take_back())
                group.create_task(self._readable.run())
                group.create_task(self._audit.run())
                group.create_task(self._services.run())
                group.create_task(self._reports.alive(store))
                group.create_task(self._reports.endpoints(store))
        finally:
            self._files_due.stop()
            self._readable.close()
            await self.server.stop()
            await self._servers.stop()
            await store.close()
        return 0

    def echoes_wait(self, store: Datastore) -> None:
        """What a store tells of an endpoint that was just offered waits until it is answered.

        With it waits for at most 50 ms whatever else happens (libcalico.datastore.etcd.stream); a
        store that cannot wait tells at once.
        """
        if isinstance(store, Deferring):
            self.server.on_offer = store.hold

    async def _follow(self, syncer: Syncer) -> None:
        async for batch in beating(syncer.batches(), self._beats.calculation.alive):
            await self.take(batch)

    async def take(self, batch: SyncBatch) -> None:
        """What the syncer says, into the calculation; `changed` tells the data plane."""
        began = time.monotonic()
        changed = settings = False
        if self._readable.identify(batch.updates) and self.calc.in_sync:
            changed |= await self._recall()
        for update in batch.updates:
            self._note_unreadable(update)
            word = self._readable.take(update)
            if word.stands:
                continue
            value = self._unconfirmed.take(update.key, word.value)
            settings |= self._configures(update.key, value)
            changed |= self._take_object(update.key, value)
        self._taken.add(len(batch.updates), time.monotonic() - began)
        self._services.want(self.calc.policy.names_services)
        if batch.in_sync and not self.calc.in_sync:
            await self._services.first()
            await self._recall()
            self.calc.in_sync = changed = settings = True
            # What the snapshot made lives long: the collector need not walk it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*COLLECTOR)
            log.info("the datastore has been read")
            if not self.calc.ready:
                log.warning("the datastore is not ready: ClusterInformation says so or lacks")
        if settings:
            changed |= await self._reconfigure()
            self._status.changed()
        if self._unconfirmed.left() is not None:
            self._deadlines.set()
        if changed:
            self.dataplane.kick()

    async def _recall(self) -> bool:
        """What was readable before this start counts where the datastore has worse now."""
        changed = False
        for key, value in await self._readable.settle():
            changed |= self._take_object(key, self._unconfirmed.take(key, value))
        return changed

    def _take_object(self, key: Key, value: Any, revision: int = NEWEST) -> bool:
        """One object, None for a deletion; returns whether anything that matters changed."""
        changed = self.calc.update(key, value, revision)
        ours = value is not None and _ours(key, value, self.node)
        self._lacking.update(key, value if ours else None)
        broken = self.calc.broken.get(key)
        if broken:
            log.warning("left out: %s", broken, extra={"object": str(key)})
        return changed

    def _take_own(self, key: ResourceKey, value: WorkloadEndpoint | None, revision: int) -> None:
        """An endpoint of this node (felix.store.ingest): it comes as a row, not in a batch."""
        if self._take_object(key, value, revision):
            self.dataplane.kick_some()

    def _configures(self, key: Key, value: Any) -> bool:
        """Whether the configuration may be another one now: its objects, this node's labels."""
        match key:
            case ResourceKey(kind="FelixConfiguration"):
                return True
            case ResourceKey(kind="Node", name=name) if name == self.node:
                before, self._labels = self._labels, value.metadata.labels if value else {}
                return before != self._labels
        return False

    async def _take_back(self) -> None:
        """Go back from versions that nobody confirmed in time."""
        while True:
            left = self._unconfirmed.left()
            self._deadlines.clear()
            try:
                async with asyncio.timeout(left):
                    await self._deadlines.wait()
            except TimeoutError:
                pass
            changed = False
            for key, value in self._unconfirmed.expired():
                log.warning("not confirmed in time: taken back", extra={"object": str(key)})
                changed |= self.calc.update(key, value)
            self._services.want(self.calc.policy.names_services)
            if changed:
                self.dataplane.kick()

    def _note_unreadable(self, update: Update) -> None:
        key = update.key
        if isinstance(key, ResourceKey) and key.kind == _SETTINGS:
            self._unreadable.pop(key, None)
            if update.entry is not None and update.entry.broken:
                self._unreadable[key] = f"{update.entry.broken}; its other parameters are in force"

    async def _reconfigure(self) -> bool:
        """Take up the parameters as they are now; returns whether any is another."""
        config = self._configure()
        if config == self.config:
            return False
        self._restart_for(config)
        self.config = self.dataplane.config = config
        self.dataplane.view.global_settings = True
        self._endpoint_status.move(config.endpoint_status_path_prefix)
        self._seen_version = -1
        self.dataplane.view.prefixes = config.interface_prefix
        self._beats.configure(config)
        await self._servers.apply(config)
        self._reports.configured()
        return True

    def _linger(self) -> float:
        """How long what the kernel tells may wait: its word on a new pod's link, address and
        routes, and the datastore's, make one turn then.
        """
        return 0.0 if self.server.waits_for_links or not self.calc.in_sync else LINGER

    def _restart_for(self, config: Config) -> None:
        """Raise `RestartNeeded` when what changed cannot be followed by a running felix."""
        if not self.dataplane.rules.prepared:
            return
        changed = [
            parameter.name
            for parameter in PARAMETERS
            if parameter.restart
            and getattr(config, parameter.attribute) != getattr(self.config, parameter.attribute)
        ]
        if changed:
            raise RestartNeeded(f"changed: {', '.join(changed)}")

    def _published(self) -> None:
        state = self.dataplane.state
        reading = "" if self.calc.in_sync else "reading the datastore"
        self._beats.calculation.state(not reading, reading)
        missing = "" if state.applied else "not yet programmed"
        if self.config.require_mtu_file and self.dataplane.links.mtu.problem:
            missing = f"the MTU file: {self.dataplane.links.mtu.problem}"
        self._beats.main_loop.state(not missing, missing)
        # First those who wait for an answer.
        self.server.publish()
        if state.version != self._seen_version and state.applied:
            seen, self._seen_version = self._seen_version, state.version
            if seen < 0:
                self._write_files()
            else:
                # The news of one turn are enough where there was but one.
                news = state.news if state.version == seen + 1 else None
                self._endpoint_status.remove(state.in_force, news)
                self._files_due.moved()
        self._status.changed()
        self._reports.moved()

    def _write_files(self) -> None:
        self._endpoint_status.update(self.dataplane.state.in_force.values())

    async def _report(self, syncer: Syncer) -> None:
        while True:
            self._beats.status.alive()
            if self._endpoint_status.again and self.dataplane.state.applied:
                self._write_files()
            self._status.write(
                {
                    "node": self.node,
                    "datastore_connected": syncer.connected,
                    "datastore_error": "" if syncer.connected else syncer.error,
                    "in_sync": self.calc.in_sync,
                    "ready": self.dataplane.state.applied,
                    "bgp_connected": self.server.speaker_connected,
                    "networking": self.networking,
                    "backend": self.dataplane.rules.backend_name,
                    "endpoints": len(self.dataplane.state.active),
                    "endpoints_in_force": len(self.dataplane.state.in_force),
                    "routes": len(self.dataplane.routing.routes),
                    "conditions": self._conditions(),
                }
            )
            await self._status.wait(STATUS_INTERVAL)

    def _metrics_page(self) -> bytes:
        known = self._syncer.known() if self._syncer is not None else {}
        found = metrics.figures(self.dataplane, known, self._taken, self._audit)
        page = metrics.text([*found, *metrics.of_unreadable(self._readable.unreadable)])
        if self.config.prometheus_process_metrics_enabled:
            page += metrics.process_text()
        return page.encode()

    def _conditions(self) -> list[dict[str, str]]:
        """What is not as an operator would want it, object by object, at most a hundred."""
        # First: a list of a hundred must not hide them.
        found = self._readable.conditions()
        found += of_dataplane(self.dataplane)
        found += self._audit.conditions()
        found += [("configuration", text) for text in self._problems]
        found += [("configuration", text) for text in self._servers.waiting()]
        found += self._endpoint_status.problems
        found += self._unconfirmed.conditions()
        found += [(str(key), reason) for key, reason in self._unreadable.items()]
        found += self._lacking.conditions()
        found += self._services.conditions()
        found += self._reports.conditions()
        return [{"object": name, "reason": reason} for name, reason in found[:100]]
