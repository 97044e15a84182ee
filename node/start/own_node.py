"""The Node of a node that runs stands: one that an operator deleted is written again.

In etcd nobody else would: the kubelet registers with Kubernetes alone. Without it no pod starts,
there are no BGP sessions, and no other node knows the way here. What the Node said last (labels,
AS number, what an operator set) is said again, but for tunnels' addresses, which may be others' now
and are taken anew. On the Kubernetes datastore the object is the kubelet's; where that made it
anew, it has none of our addresses, and they are written.

To remove a node for good, its calico-node is stopped first.
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
from node.start import addresses, startup
from node.start.addresses import Machine

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.5, 30.0

Look = Callable[[], Awaitable[Machine]]


async def keep(
    environ: Mapping[str, str], name: str, chosen: Settings, warn: Callable[[str, str], None]
) -> None:
    """Keep the Node of a registered node, for ever; `warn` hears that it was missing."""
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
    """Follows the own Node. `written` counts how often it had to be written."""

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
        """`makes`: a Node that is missing is ours to make."""
        self._store, self._name, self._chosen = store, name, chosen
        self._look, self._warn, self._makes = look, warn, makes
        self._last: Node | None = None
        self._node = ResourceKey("Node", name)
        self._settings = ResourceKey("FelixConfiguration", f"node.{name}")
        self.missing: frozenset[ResourceKey] = frozenset()
        """What the datastore lacks of these two, as far as it was told."""
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
            # The Node's settings come with it; where another program makes it they wait for it.
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
            # One that is deleted again and again waits longer each time.
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
            # Its writer knows what was meant: nothing is written over it.
            log.error("%s of this node cannot be read: mend or delete it: %s", key, error)
            self._warn(what, f"it cannot be read: {error}")
        except MuslinError as error:
            log.error("%s is missing and cannot be written: %s", key, error)
            self._warn(what, f"it was deleted and cannot be written: {error}")
        else:
            text = "it was deleted while calico-node runs here, and is written again"
            log.warning("%s: %s", key, text)
            self._warn(what, text)

    # What was told may be older than what is there, so both look first; `missing` is the
    # follower's alone, and says so once their writes were told of.

    async def _write_node(self) -> bool:
        there = await self._store.get(self._node)
        if not self._lacking(there.value if there else None, settings=True):
            return False
        log.warning("the Node of this node is missing or incomplete", extra={"node": self._name})
        machine = await self._look()
        known = remembered(self._last) if self._last else None
        await startup.register(self._store, self._name, self._chosen, machine, known)
        await startup.ensure_objects(self._store, self._name)
        self.written += 1
        return True

    async def _write_settings(self) -> bool:
        """The node's own FelixConfiguration: without it pods reach their node by other rules."""
        if await self._store.get(self._settings) is not None:
            return False
        await startup.ensure_objects(self._store, self._name)
        return True


def remembered(node: Node) -> Node:
    """What a Node said, for one that is made anew: nothing that the datastore gave it, nor
    addresses that were given back with it, nor what only a program that runs may say of itself:
    to a public key that nobody here has, others would send what nobody here can read. Pure."""
    meta = node.metadata
    for tunnel in TUNNELS:
        if tunnel.recorded(node):
            node = tunnel.written(node, "")
    status = replace(node.status, wireguardPublicKey="", wireguardPublicKeyV6="")
    fresh = Metadata(name=meta.name, labels=meta.labels, annotations=meta.annotations)
    return replace(node, metadata=fresh, status=status)
