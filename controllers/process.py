"""The process: start-up, health, leadership, and the parts that work.

One process works, the others wait for the lease. A configuration that changes ends the parts and
begins them anew with the same lease. Each part that fails by a fault of ours ends the process:
its supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers import metrics
from controllers.addresses.collection import Collection
from controllers.configuration import Configuration
from controllers.leadership.fence import FencedClient, FencedStore
from controllers.leadership.leader import Elector, LostLease
from controllers.parts import Part, build
from controllers.settings import Settings
from controllers.status import Status
from libcalico.clusterinfo import KEY as CLUSTER
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import DatastoreError, MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError
from libcalico.process import logs, paths, tasks
from libcalico.process.health import ANYWHERE, HealthServer, Reporter

log = logging.getLogger(__name__)

START_SECONDS = 60.0
HEALTH_SECONDS = 10.0
NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line. `native`: the datastore is Kubernetes, so nothing is copied into it."""

    status_file: Path | None
    health_port: int = 0
    native: bool = False


class Process:
    """One process of the controllers, on a datastore and an API that are there or will be."""

    def __init__(
        self, store: Datastore, client: Client, environ: Mapping[str, str], options: Options
    ) -> None:
        self._store, self._client, self._environ = store, client, environ
        self._options = options
        self.status = Status(options.status_file)
        self.configuration = Configuration(store, environ)
        me = f"{environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"
        self.elector = Elector(client, lease_namespace(environ), me)
        self._writer = FencedClient(client, self.elector.check)
        self._fenced = FencedStore(store, self.elector.check)
        self.parts: list[Part] = []
        self.collection: Collection | None = None
        self._reporter = Reporter("calico-kube-controllers", timeout=HEALTH_SECONDS * 6)

    async def run(self) -> None:
        """Work until cancelled. Raises MuslinError when it cannot start."""
        self.status.tell("Startup", False, "initializing the datastore")
        await self._start()
        self.status.tell("Startup", True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.configuration.run())
            group.create_task(self._health())
            if self._options.health_port:
                server = HealthServer(
                    "localhost", self._options.health_port, [self._reporter], metrics=False
                )
                group.create_task(server.run())
            await self._lead()

    async def _lead(self) -> None:
        """Work whenever the lease is held.

        A process that could not renew it is a candidate again under its own name. If no other
        process took the lease meanwhile it is still this one's; a new process would wait until it
        has run out.
        """
        while True:
            try:
                await self.elector.run(self._work)
                return
            except* LostLease as lost:
                log.warning("%s; nothing is written until it is held again", lost.exceptions[0])
                self.parts, self.collection = [], None

    async def close(self) -> None:
        """Give back what it opened itself."""
        await self._writer.close()

    async def _start(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    try:
                        kinds = "k8s,kdd" if self._options.native else "k8s"
                        await ensure_initialized(self._store, kinds, "")
                        await self.configuration.load()
                        return
                    except DatastoreError as error:
                        self.status.tell("Startup", False, str(error))
                        log.warning("the datastore cannot be used yet: %s", error)
                        await asyncio.sleep(1.0)
        except TimeoutError:
            reason = self.status.reason or "no answer"
            raise MuslinError(f"not started within {START_SECONDS:g} s: {reason}") from None

    async def _work(self) -> None:
        while True:
            self.configuration.changed.clear()
            settings = self.configuration.settings
            level = settings.running.logSeverityScreen or "Info"
            logging.getLogger().setLevel(logs.level_number(level))
            await self.configuration.report(self._fenced)
            work = tasks.start(self._generation(settings), "controllers")
            changed = tasks.start(self.configuration.changed.wait(), "change of settings")
            try:
                await asyncio.wait({work, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                changed.cancel()
                ended = await asyncio.gather(work, changed, return_exceptions=True)
            if isinstance(ended[0], Exception):
                raise ended[0]
            log.info("the configuration changed: everything begins anew")

    async def _generation(self, settings: Settings) -> None:
        self.parts, self.collection = build(
            settings, self._writer, self._fenced, native=self._options.native
        )
        async with asyncio.TaskGroup() as group:
            for part in self.parts:
                group.create_task(part.run())
            if settings.compaction and hasattr(self._store, "compact"):
                group.create_task(self._compact(self._store, settings.compaction))
            if settings.running.prometheusMetricsPort:
                port = settings.running.prometheusMetricsPort
                server = HealthServer(ANYWHERE, port, metrics=self._metrics)
                group.create_task(server.run())

    def _metrics(self) -> bytes:
        return metrics.render(
            works=self.elector.leading, parts=self.parts, collection=self.collection
        )

    async def _compact(self, store: Any, period: float) -> None:
        """History older than one period goes: watches that were away that long list again."""
        before = 0
        while True:
            try:
                if before:
                    self.elector.check()
                    await store.compact(before)
                before = (await store.list(Selection("IPAMConfig"))).revision
            except DatastoreError as error:
                log.warning("etcd is not compacted: %s", error)
            await asyncio.sleep(period)

    async def _health(self) -> None:
        while True:
            if self.configuration.settings.health:
                self.status.tell("CalicoDatastore", *await self._datastore())
                self.status.tell("KubeAPIServer", *await self._api())
            self._reporter.note = "works" if self.elector.leading else "waits for the lease"
            self._reporter.ready(self.status.ready, self.status.reason)
            await asyncio.sleep(HEALTH_SECONDS)

    async def _datastore(self) -> tuple[bool, str]:
        try:
            entry = await self._store.get(CLUSTER)
        except MuslinError as error:
            return False, str(error)
        return entry is not None, "" if entry else "the datastore is not initialized"

    async def _api(self) -> tuple[bool, str]:
        try:
            await self._client.request("GET", "/healthz")
        except KubernetesError as error:
            return False, str(error)
        return not self.elector.error, self.elector.error


def lease_namespace(environ: Mapping[str, str]) -> str:
    """Where the lease lies: the pod's own namespace, else kube-system."""
    if namespace := environ.get("POD_NAMESPACE", ""):
        return namespace
    try:
        return (paths.SERVICE_ACCOUNT / "namespace").read_text().strip() or NAMESPACE
    except OSError:
        return NAMESPACE
