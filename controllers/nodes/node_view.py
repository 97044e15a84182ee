"""The nodes as Kubernetes and as Calico know them, side by side. What the node controllers share.

A Calico Node names its Kubernetes node in `spec.orchRefs`; one that names none is no business of
ours (docs/reference/data-model.md#deletion-of-nodes).
Tested in tests/controllers/test_nodes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from controllers.mirror.objects import NODES
from libcalico import names
from libcalico.datastore.interface import Datastore, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Node as KubernetesNode
from libcalico.kubernetes.reflector import Reflector
from libcalico.model import HostEndpoint, Node
from libcalico.model.keys import ResourceKey


def kubernetes_name(node: Node) -> str:
    """Its name in Kubernetes; empty where it has none."""
    refs = (one.nodeName for one in node.spec.orchRefs if one.orchestrator == names.KUBERNETES)
    return next(refs, "")


class NodeView:
    """Follows both while `run` runs. `changed(name)`: a Calico Node, or what it refers to, did."""

    def __init__(self, client: Client, store: Datastore) -> None:
        self._store = store
        self.kubernetes: dict[str, dict[str, str]] = {}
        """Labels by name."""
        self.nodes: dict[str, Node] = {}
        self.endpoints: dict[str, dict[str, HostEndpoint]] = {}
        """Host endpoints by node and name."""
        self._node_of: dict[str, str] = {}
        self._called: dict[str, set[str]] = {}
        """Calico Nodes by the name in Kubernetes that they tell."""
        self.reflector = Reflector(client, NODES, self)
        self.changed: list[Callable[[str], None]] = []
        self._whole = False
        self._ready = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether both sides were read whole."""
        return self._ready.is_set()

    async def until_ready(self) -> None:
        """Wait for that."""
        await self._ready.wait()

    def names_of(self, kubernetes: str) -> list[str]:
        """The Calico Nodes of a Kubernetes node."""
        return sorted(self._called.get(kubernetes, ()))

    def put(self, name: Name, value: KubernetesNode) -> None:
        """Store a node of Kubernetes; only its labels count, heartbeats do not."""
        labels = dict(value.metadata.labels or {})
        if self.kubernetes.get(name.name) != labels:
            self.kubernetes[name.name] = labels
            self._tell(*self.names_of(name.name))

    def gone(self, name: Name) -> None:
        """Remove it."""
        self.kubernetes.pop(name.name, None)
        self._tell(*self.names_of(name.name))

    def listed(self) -> None:
        """Note that the list is complete."""
        self._maybe_ready()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        syncer = Syncer(self._store, [Selection("Node"), Selection("HostEndpoint")])
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for update in batch.updates:
                    assert isinstance(update.key, ResourceKey)
                    value = update.entry.value if update.entry else None
                    if update.key.kind == "Node":
                        self._node(update.key.name, value)
                    else:
                        self._endpoint(update.key.name, value)
                if batch.in_sync and not self._whole:
                    self._whole = True
                    self._maybe_ready()

    def _node(self, name: str, value: Node | None) -> None:
        before = self.nodes.pop(name, None)
        if before is not None:
            own = kubernetes_name(before)
            self._called[own].discard(name)
            if not self._called[own]:
                del self._called[own]
        if value is not None:
            self.nodes[name] = value
            self._called.setdefault(kubernetes_name(value), set()).add(name)
        self._tell(name)

    def _endpoint(self, name: str, value: HostEndpoint | None) -> None:
        before = self._node_of.pop(name, None)
        if before is not None:
            self.endpoints[before].pop(name, None)
        if value is not None:
            self._node_of[name] = value.spec.node
            self.endpoints.setdefault(value.spec.node, {})[name] = value
        self._tell(*{one for one in (before, self._node_of.get(name)) if one})

    def _maybe_ready(self) -> None:
        if self._whole and self.reflector.has_listed and not self._ready.is_set():
            self._ready.set()
            self._tell(*self.nodes.keys() | self.endpoints.keys())

    def _tell(self, *nodes: str) -> None:
        if self._ready.is_set():
            for name in nodes:
                for listener in self.changed:
                    listener(name)
