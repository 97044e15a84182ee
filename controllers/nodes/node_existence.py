"""Whether a node is gone, asked of store and API themselves.

What is followed may lack a node that lives: its object cannot be read, or a watch is behind. So
before anything of a node is taken away, both are asked. And a node that is gone may come back: an
operator deletes it by mistake, its kubelet registers again, and its pods never ended.

Invariant (tests/controllers/test_node_existence.py):
  LEAK-6  Nothing of a node is taken away before it was gone for `GRACE` seconds at every look, nor
          while its calico-node gives signs of life. While the datastore takes no signs (etcd that
          is full lets them run out, and goes on to delete), that time does not pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from controllers.mirror.objects import NODES
from controllers.nodes.node_view import kubernetes_name
from libcalico.datastore.capabilities import require_room
from libcalico.datastore.interface import Datastore
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
from libcalico.model.keys import LifeSignKey, ResourceKey

log = logging.getLogger(__name__)

GRACE = 60.0
"""Seconds for which a node must have been gone."""
AGAIN = 5.0
"""Seconds after which a node that may be gone is asked for again."""


class NodeExistence:
    """Which nodes are gone for good. `waiting` are those that seem gone, each with the reason
    why nothing of it is taken away yet."""

    def __init__(
        self,
        store: Datastore,
        client: Client,
        *,
        grace: float = GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._client, self._grace, self._clock = store, client, grace, clock
        self._since: dict[str, float] = {}
        self.waiting: dict[str, str] = {}

    def is_back(self, node: str) -> None:
        """Note that a node exists: its time begins again when it goes."""
        self._since.pop(node, None)
        self.waiting.pop(node, None)

    def forget_others(self, nodes: Collection[str]) -> None:
        """Note that only these may hold anything: of the others nothing waits any more.

        One that gets the name of one of them is a new node: its time begins anew.
        """
        for node in self._since.keys() - nodes:
            self.is_back(node)

    async def gone_for_good(self, node: str) -> bool:
        """Whether what the node holds may be taken away (LEAK-6)."""
        if not await is_gone(self._store, self._client, node):
            self.is_back(node)
            return False
        now = self._clock()
        try:
            await require_room(self._store, ResourceKey("Node", node))
        except MuslinError as error:
            self._since[node] = now
            self._wait(node, f"no node could give signs of life now: {error}")
            return False
        since = self._since.setdefault(node, now)
        if now - since < self._grace:
            self._wait(node, "it is not gone for long")
            return False
        try:
            sign = await self._store.get(LifeSignKey(node))
        except MuslinError as error:
            self._wait(node, f"its life sign cannot be read: {error}")
            return False
        if sign is not None:
            self._wait(node, "its calico-node gives signs of life")
            return False
        self.waiting.pop(node, None)
        return True

    def _wait(self, node: str, why: str) -> None:
        if self.waiting.get(node) != why:
            log.warning("a node is gone, and what it holds stays: %s", why, extra={"node": node})
        self.waiting[node] = why


async def is_gone(store: Datastore, client: Client, node: str) -> bool:
    """Whether there is no such Node, or Kubernetes has no longer the one it names.

    A node that cannot be read, or cannot be asked for, is not gone.
    """
    try:
        entry = await store.get(ResourceKey("Node", node))
    except MuslinError:
        return False
    if entry is None:
        return True
    own = kubernetes_name(entry.value)
    if not own:
        return False
    try:
        await client.get(NODES, own)
    except ObjectNotFound:
        return True
    except KubernetesError:
        return False
    return False
