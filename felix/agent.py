"""One felix: the datastore, the sockets and the main loop, put together.

Tasks of one event loop: follow the datastore, run the main loop, write the status file. If
one of them ends, felix ends (its supervisor starts it again); at an orderly end the kernel's
tables stay as they are, so a restart is not felt.
Tested in tests/felix/test_forwarding.py, test_restart.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from felix import metrics
from felix.calc.graph import Calculator, selections
from felix.calc.paths import PathTable
from felix.config.parameters import Config
from felix.config.resolve import Resolved, read_file, resolve
from felix.dataplane.loop import Dataplane
from felix.endpoint_status import EndpointStatus
from felix.node_server import NodeServer
from felix.servers import Servers
from felix.status import StatusFile
from libcalico import apiconfig, paths
from libcalico.datastore import connect
from libcalico.datastore.syncer import Syncer, Update
from libcalico.health import Reporter
from libcalico.logs import level_number
from libcalico.model import Key, ResourceKey
from libcalico.model.lacking import Lacking

HEARTBEAT_TIMEOUT = 90.0
STATUS_INTERVAL = 10.0
_SETTINGS = "FelixConfiguration"

log = logging.getLogger(__name__)


def _ours(key: Key, value: Any, node: str) -> bool:
    """Whether this felix names what an object asks for in vain (policies say it themselves)."""
    match key:
        case ResourceKey(kind="WorkloadEndpoint"):
            return bool(value.spec.node == node)
        case ResourceKey(kind="FelixConfiguration", name=name):
            # The others are part of the configuration, which names its own problems.
            return name != "default" and not name.startswith("node.")
        case ResourceKey(kind="IPPool"):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Paths:
    """Where felix's files lie; tests choose their own."""

    node_socket: Path = paths.NODE_SOCKET
    config: Path = paths.FELIX_CONFIG
    status: Path = paths.STATUS


class Agent:
    """Felix of one node."""

    def __init__(self, node: str, environ: Mapping[str, str], where: Paths | None = None) -> None:
        self.node, self._environ, self._where = node, environ, where or Paths()
        self.calc = Calculator(node)
        self._told_problems: set[str] = set()
        self._problems: list[str] = []
        self._lacking = Lacking(log)
        self._unreadable: dict[Key, str] = {}
        self.config = self._configure()
        self.server = NodeServer(node)
        self.dataplane = Dataplane(self.calc, PathTable(), self.config, self._published)
        self._calculation = Reporter("CalculationGraph")
        self._main_loop = Reporter("InternalDataplaneMainLoop", HEARTBEAT_TIMEOUT)
        self._servers = Servers([self._calculation, self._main_loop])
        self._endpoint_status = EndpointStatus(self.config.endpoint_status_path_prefix)
        self._status = StatusFile(self._where.status)
        self._seen_version = -1
        self._syncer: Syncer | None = None

    def _configure(self) -> Config:
        resolved = self._resolve()
        for problem in resolved.problems:
            text = str(problem)
            if text not in self._told_problems:
                self._told_problems.add(text)
                # Calico has some 190 parameters; those of a later step are no mistake.
                level = logging.INFO if problem.unknown else logging.WARNING
                log.log(level, "configuration: %s", text)
        self._problems = [str(problem) for problem in resolved.problems if not problem.unknown]
        if "log_severity_screen" in resolved.origins:
            logging.getLogger().setLevel(level_number(resolved.config.log_severity_screen))
        return resolved.config

    def _resolve(self) -> Resolved:
        try:
            text = read_file(self._where.config)
        except OSError as error:
            log.warning("%s cannot be read: %s", self._where.config, error)
            text = ""
        stored = self.calc.felix_configurations
        return resolve(self.node, environ=self._environ, file_text=text, stored=stored)

    async def run(self) -> int:
        """Run until cancelled; an exception says what could not go on."""
        metrics.register(self.dataplane)
        await self._servers.apply(self.config)
        store = await connect(apiconfig.load(None, self._environ))
        self._syncer = Syncer(store, selections(self.node), resident=True)
        await self.server.start(self.dataplane, self._where.node_socket)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.dataplane.run(self._main_loop.alive))
                group.create_task(self._follow(self._syncer))
                group.create_task(self._report(self._syncer))
        finally:
            await self.server.stop()
            await self._servers.stop()
            await store.close()
        return 0

    async def _follow(self, syncer: Syncer) -> None:
        async for batch in syncer.batches():
            changed = settings = False
            for update in batch.updates:
                settings |= isinstance(update.key, ResourceKey) and update.key.kind == _SETTINGS
                value = update.entry.value if update.entry is not None else None
                changed |= self.calc.update(update.key, value)
                self._note_unreadable(update)
                ours = value is not None and _ours(update.key, value, self.node)
                self._lacking.update(update.key, value if ours else None)
                broken = self.calc.broken.get(update.key)
                if broken:
                    log.warning("left out: %s", broken, extra={"object": str(update.key)})
            if batch.in_sync and not self.calc.in_sync:
                self.calc.in_sync = changed = settings = True
                # What the snapshot made lives long: the collector need not walk it again.
                gc.collect()
                gc.freeze()
                log.info("the datastore has been read")
                if not self.calc.ready:
                    log.warning("the datastore is not ready: ClusterInformation says so or lacks")
            if settings and changed:
                await self._reconfigure()
            if changed:
                self.dataplane.kick()

    def _note_unreadable(self, update: Update) -> None:
        key = update.key
        if isinstance(key, ResourceKey) and key.kind == _SETTINGS:
            self._unreadable.pop(key, None)
            if update.entry is not None and update.entry.broken:
                self._unreadable[key] = f"{update.entry.broken}; its other parameters are in force"

    async def _reconfigure(self) -> None:
        config = self._configure()
        if config != self.config:
            self.config = self.dataplane.config = config
            self.dataplane.view.prefixes = config.interface_prefix
            await self._servers.apply(config)

    def _published(self) -> None:
        state = self.dataplane.state
        self._calculation.ready(self.calc.in_sync, "" if self.calc.in_sync else "reading")
        self._main_loop.ready(state.applied, "" if state.applied else "not yet programmed")
        # First those who wait for an answer.
        self.server.publish()
        if state.version != self._seen_version and state.applied:
            self._seen_version = state.version
            self._endpoint_status.update(state.in_force.values())
        self._status.changed()

    async def _report(self, syncer: Syncer) -> None:
        while True:
            self._status.write(
                {
                    "node": self.node,
                    "datastore_connected": syncer.connected,
                    "datastore_error": "" if syncer.connected else syncer.error,
                    "in_sync": self.calc.in_sync,
                    "ready": self.dataplane.state.applied,
                    "bgp_connected": self.server.speaker_connected,
                    "endpoints": len(self.dataplane.state.active),
                    "endpoints_in_force": len(self.dataplane.state.in_force),
                    "routes": len(self.dataplane.routes.table.actual),
                    "conditions": self._conditions(),
                }
            )
            await self._status.wait(STATUS_INTERVAL)

    def _conditions(self) -> list[dict[str, str]]:
        """What is not as an operator would want it, object by object, at most a hundred."""
        plane = self.dataplane
        found = [(str(key), reason) for key, reason in self.calc.broken.items()]
        found += [(str(key), reason) for key, reason in self.calc.policy.conditions.items()]
        found += [(str(key), reason) for key, reason in plane.degraded().items()]
        found += [(str(key), reason) for key, reason in plane.state.shadowed.items()]
        found += list(plane.state.failures.items())
        found += [
            (f"route {dst}", "another program's route of the same destination and metric stands")
            for dst in plane.routes.conflicts
        ]
        found += [(f"path {p}", reason) for p, reason in plane.remote.complaints().items()]
        found += [("configuration", text) for text in self._problems]
        found += [(str(key), reason) for key, reason in self._unreadable.items()]
        found += self._lacking.conditions()
        return [{"object": name, "reason": reason} for name, reason in found[:100]]
