"""The daemon `calico-cni`: everything warm, so that a pod starts in milliseconds.

It holds the datastore connection, the allocator with this node's blocks, the line to felix
and the socket on which the executable calls. Killed at any moment, it resumes from datastore,
kernel, journal and records (`cni.node.records`), and traffic does not notice.
Tested in tests/cni/test_daemon_add.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from cni.node.cluster import Cluster
from cni.node.daemon_context import DaemonContext, Settings
from cni.node.del_queue import DelQueue
from cni.node.felix_client import FelixClient
from cni.pods.pod_events import Refusals
from cni.pods.pod_source import PodSource
from cni.pods.pod_sources import PodSources
from cni.request.stores import StoreCheck
from cni.server.collection import Collection
from cni.server.restore import Restorer
from cni.server.server import Server
from cni.socket import accepting
from cni.socket.protocol import PendingDelete
from cni.socket.trace import RESTORED, TRANSACTIONS, Traces
from ipam.allocator.service import NodeAllocator
from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.clusterinfo import our_version
from libcalico.datastore.capabilities import Replaceable, require_room, why_full
from libcalico.datastore.interface import Datastore
from libcalico.errors import MuslinError
from libcalico.kubernetes.access import Source
from libcalico.model.keys import ResourceKey
from libcalico.process import status_file
from libcalico.process.backoff import Backoff
from libcalico.process.health import HealthServer, Reporter
from linux.netlink import Socket

log = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
WARM_SECONDS = 2.0


def read_node_name(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The name that node start-up left, else NODENAME; None while there is neither."""
    name = parsing.text_of(settings.nodename_file).strip()
    return name or environ.get("NODENAME") or None


async def wait_for_node_name(settings: Settings, environ: Mapping[str, str]) -> str:
    """The node's name, as soon as node start-up has written it."""
    logged = False
    backoff = Backoff(0.05, 1.0)
    while (name := read_node_name(settings, environ)) is None:
        if not logged:
            log.info("waiting for %s", settings.nodename_file)
            logged = True
        await backoff.wait()
    return name


class Daemon:
    """One node's daemon. `run` serves until cancelled."""

    def __init__(
        self,
        store: Datastore,
        node: str,
        settings: Settings | None = None,
        pod_source: PodSource | None = None,
        access: DatastoreConfig | None = None,
        kubernetes: Source | None = None,
        kubernetes_name: str = "",
    ) -> None:
        """`access`: what `store` was connected by. `kubernetes`: this daemon's way to its API.

        `kubernetes_name`: what that API calls this node, where it is not `node`.
        """
        self._settings = settings or Settings()
        allocator = NodeAllocator(store, node, facts=lambda: cluster.facts(node))
        cluster = Cluster(store, node, allocator.claim_lost)
        self._pods = PodSources(node, kubernetes, self._settings.host)
        self._traces = Traces()
        felix = FelixClient(self._settings.felix_socket, self._settings.endpoint_status)
        self.context = DaemonContext(
            settings=self._settings,
            node=node,
            store=store,
            allocator=allocator,
            cluster=cluster,
            felix=felix,
            pod_source=pod_source or self._pods,
            check_store=StoreCheck(access, self._settings.host),
            journal=DelQueue(self._settings.pending, self._replay, felix.unreleased),
            host=Socket(),
        )
        cluster.store_replaced = self._store_replaced
        if isinstance(store, Replaceable):
            store.when_replaced = cluster.replaced
        self._finding: asyncio.Task[None] | None = None
        self._refusals = Refusals(kubernetes, kubernetes_name or node)
        self.server = Server(self.context, our_version(), self._traces, self._refusals.tell)
        self.collection = Collection(self.context, self.server, gap=self._settings.collect_gap)
        self.restorer = Restorer(self.context, self.server.container_lock)
        self._socket_reporter = Reporter("socket", timeout=30.0)
        self._datastore_reporter = Reporter("datastore")
        self.health = HealthServer(
            self._settings.health_host,
            self._settings.health_port,
            [self._socket_reporter, self._datastore_reporter],
        )

    async def run(self) -> None:
        """Serve until cancelled; raises if one of the parts ends by an error."""
        self.context.records.load()
        with contextlib.suppress(MuslinError, TimeoutError):
            # A datastore that is away must not keep the socket closed.
            async with asyncio.timeout(WARM_SECONDS):
                await self.context.allocator.warm()
        listener = accepting.listen(self._settings.socket)
        log.info("serving %s", self._settings.socket, extra={"node": self.context.node})
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.context.allocator.run())
                group.create_task(self.context.cluster.run())
                group.create_task(self._find_lost_claims())
                group.create_task(self.context.felix.run())
                group.create_task(self._pods.run())
                group.create_task(self._refusals.run())
                group.create_task(self.context.journal.run())
                group.create_task(self.collection.run())
                group.create_task(self.restorer.run())
                group.create_task(self.context.records.run())
                group.create_task(self.health.run())
                group.create_task(self._report())
                group.create_task(accepting.serve(listener, self.server.handle))
        finally:
            self.context.records.flush()
            if self.context.undoing:
                await asyncio.wait(self.context.undoing, timeout=2.0)
            self.context.veth_remover.close()
            self.context.threads.shutdown(wait=False)
            self.context.host.close()

    async def _find_lost_claims(self) -> None:
        """Learn the claims that were lost while this daemon did not run; later the watch tells."""
        await self.context.cluster.wait_in_sync()
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                await self.context.allocator.find_lost_claims()
            except MuslinError as error:
                log.warning("own blocks without a claim are not known yet: %s", error)
                await backoff.wait()
            else:
                return

    def _store_replaced(self) -> None:
        """Forget what is remembered of the datastore: a backup was put back."""
        self.context.del_cache.clear()
        self.context.released.clear()
        self.context.allocator.store_replaced()
        self.context.records.comparison_due.set()
        if self._finding is None or self._finding.done():
            self._finding = self.context.keep(self._find_lost_claims())

    async def _replay(self, record: PendingDelete, file: Path) -> None:
        await self.server.replay(record, file)

    async def _report(self) -> None:
        """Heartbeat, readiness and the status file."""
        while True:
            cluster = self.context.cluster
            self._socket_reporter.ready(True)
            detail = "" if cluster.connected else "the datastore does not answer"
            self._datastore_reporter.ready(cluster.in_sync and cluster.connected, detail)
            if why_full(self.context.store):
                await self._look_for_room()
            TRANSACTIONS.set(self.context.allocator.transactions)
            RESTORED.set(self.context.allocator.restored)
            try:
                status_file.write("cni", self._status(), self._settings.status)
            except OSError as error:
                log.warning("the status file cannot be written: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_SECONDS if cluster.in_sync else 0.5):
                    await cluster.connection_changed.wait()
            cluster.connection_changed.clear()

    async def _look_for_room(self) -> None:
        """Ask whether a full datastore takes writes again, which no ADD may try for long."""
        with contextlib.suppress(MuslinError, TimeoutError):
            async with asyncio.timeout(STATUS_SECONDS):
                key = ResourceKey("Node", self.context.node)
                await require_room(self.context.store, key)

    def _status(self) -> dict[str, object]:
        return {
            "version": our_version(),
            "node": self.context.node,
            "datastore": self.context.cluster.connected,
            "felix": self.context.felix.connected,
            "kubernetes": self._pods.status(),
            "pending": self.context.journal.count(),
            "traces": self._traces.summaries(),
            "conditions": self._conditions(),
        }

    def _conditions(self) -> list[dict[str, str]]:
        node = f"Node({self.context.node})"
        conditions = []
        if self.collection.foreign:
            text = f"no address is collected: {self.collection.foreign}"
            conditions.append({"object": node, "reason": text})
        cluster = self.context.cluster
        if cluster.in_sync and not cluster.has_node(self.context.node):
            missing = cluster.unreadable or "it does not exist"
            conditions.append({"object": node, "reason": f"{missing}, so no pod starts here"})
        if full := why_full(self.context.store):
            conditions.append({"object": "datastore", "reason": f"no pod starts here: {full}"})
        if left := cluster.settling:
            text = f"it was put back to an earlier state: no pod starts here for {left:.0f} s"
            conditions.append({"object": "datastore", "reason": text})
        for pod, why in sorted(self.restorer.lost.items()):
            text = f"it runs and is not in the datastore ({why}): start it again"
            conditions.append({"object": pod, "reason": text})
        return conditions


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Settings that the environment overrides.

    `CALICO_CNI_HEALTHPORT`, `CALICO_NODENAME_FILE`, and `CALICO_CNI_CRI_SOCKET`: the runtime's
    CRI socket, whose sandbox list the collector then asks. Raises InvalidValue.
    """
    port = environ.get("CALICO_CNI_HEALTHPORT", "")
    nodename = environ.get("CALICO_NODENAME_FILE", "")
    cri = environ.get("CALICO_CNI_CRI_SOCKET", "").removeprefix("unix://")
    settings = Settings()
    return Settings(
        cri_socket=Path(cri) if cri else None,
        nodename_file=Path(nodename) if nodename else settings.nodename_file,
        health_port=parsing.port("CALICO_CNI_HEALTHPORT", port) if port else settings.health_port,
    )
