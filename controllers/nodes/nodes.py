"""Nodes: those that Kubernetes lost are removed, the others get its labels and host endpoints.

Invariants (tests/controllers/test_nodes.py):
  NOD-1  A Node is removed only if it names a node of Kubernetes, both sides were read whole, and
         the API, asked for that one, says that there is none; for as long as LEAK-6 says.
  NOD-2  Only host endpoints that carry the controllers' own mark are changed or deleted.
Source: docs/reference/data-model.md#labels-of-nodes, #deletion-of-nodes, #automatic-host-endpoints.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from controllers.mirror.mirror import PERIOD
from controllers.nodes import host_endpoints, node_labels
from controllers.nodes.node_existence import AGAIN, NodeExistence
from controllers.nodes.node_view import NodeView, kubernetes_name
from controllers.queue import WorkQueue
from ipam.admin import node_removal
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
)
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.model import HostEndpoint
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.controllers import AutoHostEndpointConfig

log = logging.getLogger(__name__)


def endpoint_change(
    key: ResourceKey, want: HostEndpoint | None, entry: Entry | None
) -> Change | None:
    """The change that makes a host endpoint the desired one (NOD-2). Pure."""
    if entry is None:
        return Put(key, want, ABSENT) if want else None
    if not host_endpoints.is_ours(entry.value):
        return None
    if want is None:
        return Delete(key, entry.revision)
    there = entry.value.metadata
    annotations = {**there.annotations, **want.metadata.annotations}
    metadata = replace(there, labels=want.metadata.labels, annotations=annotations)
    if metadata == there and entry.value.spec == want.spec:
        return None
    return Put(key, replace(entry.value, metadata=metadata, spec=want.spec), entry.revision, entry)


class Nodes:
    """Keeps nodes so while `run` runs. `view` must run beside it."""

    name = "node"

    def __init__(
        self,
        view: NodeView,
        client: Client,
        store: Datastore,
        *,
        sync_labels: bool = True,
        endpoints: AutoHostEndpointConfig | None = None,
        workers: int = 1,
        period: float = PERIOD,
        removed: Callable[[str], None] = lambda _: None,
        presence: NodeExistence | None = None,
        again: float = AGAIN,
    ) -> None:
        self._view, self._store = view, store
        self._sync_labels, self._endpoints = sync_labels, endpoints
        self._workers, self._period, self._removed = workers, period, removed
        self._presence, self._again = presence or NodeExistence(store, client), again
        self._doubtful: set[str] = set()
        self.queue: WorkQueue[str] = WorkQueue()
        self.writes = self.failures = 0
        view.changed.append(self.queue.add)

    @property
    def ready(self) -> bool:
        """Whether all nodes are known."""
        return self._view.ready

    @property
    def in_sync(self) -> bool:
        """Whether, besides, nothing waits."""
        return self.ready and not len(self.queue)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.queue.serve(
            self._settle, self._resync(), self._ask_again(), workers=self._workers
        )

    async def _ask_again(self) -> None:
        """Nodes that are gone, and that may still come back."""
        while True:
            await asyncio.sleep(self._again)
            for name in self._doubtful:
                self.queue.add(name)

    async def _resync(self) -> None:
        await self._view.until_ready()
        while True:
            await asyncio.sleep(self._period)
            for name in self._view.nodes.keys() | self._view.endpoints.keys():
                self.queue.add(name)

    async def _settle(self, name: str) -> bool:
        try:
            await self._node(name)
        except CommitConflict:
            return False
        except MuslinError as error:
            self.failures += 1
            log.warning("tried again: %s", error, extra={"node": name})
            return False
        return True

    async def _node(self, name: str) -> None:
        node = self._view.nodes.get(name)
        own = kubernetes_name(node) if node else ""
        if own and own not in self._view.kubernetes:
            if not self._view.reflector.has_listed:
                return
            if await self._presence.gone_for_good(name):
                self._doubtful.discard(name)
                await self._remove(name)
            else:
                self._doubtful.add(name)
            return
        self._doubtful.discard(name)
        if node:
            # Without one only the store says whether it is gone, and since when.
            self._presence.is_back(name)
        if node and own and self._sync_labels:
            await self._label(name, own)
        await self._hold_endpoints(name)

    async def _remove(self, name: str) -> None:
        entry = await self._store.get(ResourceKey("Node", name))
        if entry is None:
            return
        await node_removal.remove(self._store, entry)
        self.writes += 1
        log.info("removed: Kubernetes has no such node", extra={"node": name})
        self._removed(name)

    async def _label(self, name: str, kubernetes: str) -> None:
        labels = self._view.kubernetes[kubernetes]
        if node_labels.synced(self._view.nodes[name], labels) is None:
            return
        entry = await self._store.get(ResourceKey("Node", name))
        fresh = node_labels.synced(entry.value, labels) if entry else None
        if entry and fresh:
            await self._store.commit([Put(entry.key, fresh, entry.revision, entry)])
            self.writes += 1

    async def _hold_endpoints(self, name: str) -> None:
        node = self._view.nodes.get(name)
        desired = host_endpoints.desired(node, self._endpoints) if node else {}
        known = self._view.endpoints.get(name, {})
        ours = {one for one, value in known.items() if host_endpoints.is_ours(value)}
        for one in sorted(desired.keys() | ours):
            want, there = desired.get(one), known.get(one)
            if there is not None and want is not None and _equal(there, want):
                continue
            key = ResourceKey("HostEndpoint", one)
            entry = await self._store.get(key)
            change = endpoint_change(key, want, entry)
            if change is not None:
                await self._store.commit([change])
                self.writes += 1
            elif want is not None and entry is not None and not host_endpoints.is_ours(entry.value):
                log.warning("a host endpoint of this name is somebody else's: %s", one)


def _equal(there: HostEndpoint, want: HostEndpoint) -> bool:
    return (
        there.spec == want.spec
        and there.metadata.labels == want.metadata.labels
        and want.metadata.annotations.items() <= there.metadata.annotations.items()
    )
