"""Keeping the Node of a running node: one that an operator deleted is written again.

In etcd no other program would write it: the kubelet registers with Kubernetes alone. Without the
Node no pod starts, there are no BGP sessions, and no other node has a route here. The new Node has
the fields of the last one (labels, AS number, what an operator set) but for tunnel addresses: other
nodes may have them now, so new ones are assigned. On the Kubernetes datastore the object is the
kubelet's; if the kubelet made it anew, our addresses are missing there and are written.

To remove a node for good, stop its calico-node first.
Invariant (tests/node/test_own_node.py):
  NODE-4  While calico-node runs, its Node has an address and what it said last, and its own
          FelixConfiguration exists.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from msgspec.structs import replace

from ipam.records.tunnel_kinds import TUNNELS
from libcalico import apiconfig
from libcalico.datastore import UNHURRIED, connect
from libcalico.datastore.interface import Datastore, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node
from libcalico.process.backoff import Backoff
from node.identity import kubernetes, life, registration
from node.settings.environment import Settings
from node.start import addresses, cluster_objects, node_object
from node.start.addresses import Machine

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.5, 30.0

Look = Callable[[], Awaitable[Machine]]


async def keep(
    environ: Mapping[str, str], name: str, chosen: Settings, warn: Callable[[str, str], None]
) -> None:
    """Keep the Node of a registered node, for ever; `warn` is called when it was missing."""
    config = apiconfig.of_node(environ)
    ours = config.datastore_type != apiconfig.KUBERNETES

    async def look() -> Machine:
        kubernetes_name = chosen.kubernetes_name(name)
        facts = await kubernetes.read(environ, config, kubernetes_name, node_only=True)
        return await addresses.look(facts.internal, bool(facts.problem and not facts.internal))

    store = await connect(config, gather=UNHURRIED)
    try:
        keeper = Keeper(store, name, chosen, look, warn, makes=ours)
        keeper.own_name = lambda: life.require_own_name(environ, config, store, name)
        await keeper.run()
    finally:
        await store.close()


async def _no_doubt() -> None:
    return None


class Keeper:
    """Follows the own Node. `written` counts its writes."""

    def __init__(
        self,
        store: Datastore,
        name: str,
        chosen: Settings,
        look: Look = addresses.look,
        warn: Callable[[str, str], None] = lambda _what, _why: None,
        *,
        makes: bool = True,
    ) -> None:
        """`makes`: this process makes a Node that is missing."""
        self._store, self._name, self._chosen = store, name, chosen
        self._look, self._warn, self._makes = look, warn, makes
        self._last: Node | None = None
        self._node = ResourceKey("Node", name)
        self._settings = ResourceKey("FelixConfiguration", f"node.{name}")
        self.missing: frozenset[ResourceKey] = frozenset()
        """Those of the two that the datastore lacks, by its events so far."""
        self._wake = asyncio.Event()
        self.own_name: Callable[[], Awaitable[None]] = _no_doubt
        self.written = 0

    async def run(self) -> None:
        """Follow and write; returns only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._write())

    async def _follow(self) -> None:
        now: Node | None = None
        settings = False
        own = Selection("FelixConfiguration", name_prefix=self._settings.name)
        syncer = Syncer(self._store, [Selection("Node", host=self._name), own])
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for update in batch.updates:
                    if update.key == self._settings:
                        settings = update.entry is not None
                    elif update.key == self._node:
                        now = update.entry.value if update.entry else None
                if self._is_whole(now):
                    self._last = now
                if batch.in_sync:
                    self.missing = self._lacking(now, settings=settings)
                if self.missing:
                    self._wake.set()

    def _lacking(self, node: Node | None, *, settings: bool) -> frozenset[ResourceKey]:
        if not self._is_whole(node):
            # The settings are written with the Node; where another program makes it, they wait.
            return frozenset([self._node] if node is not None or self._makes else [])
        return frozenset([] if settings else [self._settings])

    def _is_whole(self, node: Node | None) -> bool:
        if node is None:
            return False
        return self._chosen.backend == "none" or registration.has_address(node)

    async def _write(self) -> None:
        backoff, ended = Backoff(FIRST_RETRY, LAST_RETRY), 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            if time.monotonic() - ended > 2 * LAST_RETRY:
                backoff.reset()
            for key in self.missing:
                await self._write_again(key)
            # A Node that is deleted again and again waits longer each time.
            await backoff.wait()
            ended = time.monotonic()
            if self.missing:
                self._wake.set()

    async def _write_again(self, key: ResourceKey) -> None:
        what, write = (
            ("own Node", self._write_node)
            if key == self._node
            else ("own settings", self._write_settings)
        )
        try:
            await self.own_name()
            if not await write():
                return
        except InvalidValue as error:
            # Only its writer knows what was meant, so it is not overwritten.
            log.error("%s of this node cannot be read: mend or delete it: %s", key, error)
            self._warn(what, f"it cannot be read: {error}")
        except MuslinError as error:
            log.error("%s is missing and cannot be written: %s", key, error)
            self._warn(what, f"it was deleted and cannot be written: {error}")
        else:
            text = "it was deleted while calico-node runs here, and is written again"
            log.warning("%s: %s", key, text)
            self._warn(what, text)

    # Events may be older than the datastore, so both read first. Only `_follow` sets `missing`,
    # once it has seen their writes.

    async def _write_node(self) -> bool:
        there = await self._store.get(self._node)
        if not self._lacking(there.value if there else None, settings=True):
            return False
        log.warning("the Node of this node is missing or incomplete", extra={"node": self._name})
        machine = await self._look()
        known = remembered(self._last) if self._last else None
        await node_object.register(self._store, self._name, self._chosen, machine, known)
        await cluster_objects.ensure_objects(self._store, self._name)
        self.written += 1
        return True

    async def _write_settings(self) -> bool:
        """Write the node's own FelixConfiguration: without it pods reach it by other rules."""
        if await self._store.get(self._settings) is not None:
            return False
        await cluster_objects.ensure_objects(self._store, self._name)
        return True


def remembered(node: Node) -> Node:
    """The Node to write in place of a deleted one. Pure.

    It lacks what the datastore assigned, and tunnel addresses, which were released with the Node.
    It also lacks WireGuard's public keys: no program here may have the private key to read what
    others would send.
    """
    meta = node.metadata
    for tunnel in TUNNELS:
        if tunnel.recorded(node):
            node = tunnel.written(node, "")
    status = replace(node.status, wireguardPublicKey="", wireguardPublicKeyV6="")
    fresh = Metadata(name=meta.name, labels=meta.labels, annotations=meta.annotations)
    return replace(node, metadata=fresh, status=status)
