"""What the daemon knows of the cluster without asking: pools, its node, settings, the ready flag.

A watch keeps a few small things warm, so that an ADD asks the datastore nothing before its
one transaction. While the datastore is away the last known state serves; the transaction
itself then says that the datastore is away.
Tested in tests/cni/test_status.py and tests/cni/test_daemon_faults.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from cni.request.errors import CNIError, Code
from ipam.allocator.facts import Facts
from ipam.records.pools import Pool, reserved_networks, usable
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import DatastoreError, InvalidValue
from libcalico.model import IPAMConfig
from libcalico.model.keys import AffinityKey, IPAMConfigKey, IPNetwork, Key, ResourceKey
from libcalico.model.resources.ipam import DEFAULT_IPAM_CONFIG

log = logging.getLogger(__name__)

FAMILIES = ("IPPool", "IPReservation", "IPAMConfig", "ClusterInformation")
FIND_SECONDS = 3.0
SETTLE_SECONDS = 30.0
"""How long no address is given out after the store was replaced. A node notices within some 12 s,
and puts back what its pods have within a few more."""
READY_KEY = ResourceKey("ClusterInformation", "default")


class Cluster:
    """`run` keeps it current. Of the nodes it knows its own.

    `claim_lost` hears of each block on which the node has no claim any more.
    """

    def __init__(
        self,
        store: Datastore,
        node: str,
        claim_lost: Callable[[IPNetwork], None] = lambda _: None,
    ) -> None:
        self._store = store
        own = [Selection("Node", host=node), Selection("BlockAffinity", host=node)]
        self.connection_changed = asyncio.Event()
        """`connected` may be another; the reader clears it."""
        self._syncer = Syncer(
            store,
            [*(Selection(family) for family in FAMILIES), *own],
            # A claim may be deleted before it was told that it was made.
            fleeting=True,
            on_connection=self._connection_moved,
            on_replaced=self.replaced,
        )
        self._cut_at: float | None = None
        self._claim_lost = claim_lost
        self._reserved: dict[Key, list[IPNetwork]] = {}
        self._config: IPAMConfig = DEFAULT_IPAM_CONFIG
        self._pools: dict[Key, Pool] = {}
        self._labels: dict[Key, dict[str, str]] = {}
        self._pod_cidrs: dict[Key, list[str]] = {}
        self._ready: bool | None = None
        self.node_came: Callable[[], None] = lambda: None
        """Called when the own Node was missing and is there, or is another one by its uid."""
        self._node_uid = ""
        self._node = node
        self.unreadable = ""
        """Why the own Node cannot be read, which then looks as if there were none."""
        self.store_replaced: Callable[[], None] = lambda: None
        """Called when the store is at an earlier state than before: a backup was put back."""
        self.settle_seconds = SETTLE_SECONDS
        self._replaced_at: float | None = None
        self._in_sync = asyncio.Event()

    @property
    def in_sync(self) -> bool:
        """Whether the first snapshot is complete."""
        return self._in_sync.is_set()

    async def wait_in_sync(self) -> None:
        """Wait until the first snapshot is complete."""
        await self._in_sync.wait()

    @property
    def connected(self) -> bool:
        """Whether the watch stands."""
        return self._syncer.connected

    @property
    def cut(self) -> float:
        """Seconds for which the watch has not stood; 0 while it stands."""
        return 0.0 if self._cut_at is None else time.monotonic() - self._cut_at

    def _connection_moved(self) -> None:
        if self.connected:
            self._cut_at = None
        elif self._cut_at is None:
            self._cut_at = time.monotonic()
        self.connection_changed.set()

    @property
    def settling(self) -> float:
        """Seconds for which nodes still restore what a restored datastore lacks."""
        if self._replaced_at is None:
            return 0.0
        return max(0.0, self._replaced_at + self.settle_seconds - time.monotonic())

    def replaced(self) -> None:
        """Note that the datastore was put back to an earlier state."""
        if not self.settling:
            log.warning("the datastore was put back to an earlier state, or replaced")
        self._replaced_at = time.monotonic()
        self.store_replaced()

    @property
    def locked(self) -> bool:
        """Whether the datastore is locked against writes (a migration)."""
        return self._ready is False

    def facts(self, node: str) -> Facts | None:
        """What the allocator needs; None before the first snapshot."""
        if not self.in_sync:
            return None
        key = ResourceKey("Node", node)
        reserved = [network for networks in self._reserved.values() for network in networks]
        pools = list(self._pools.values())
        return Facts(pools, self._labels.get(key, {}), reserved, self._config)

    @property
    def tunnel_devices(self) -> list[str]:
        """The devices without which pods of other nodes are out of reach, by all pools."""
        return sorted({device for pool in self._pools.values() for device in _tunnels(pool)})

    def has_node(self, node: str) -> bool:
        """Whether there is a Node resource of this name."""
        return ResourceKey("Node", node) in self._labels

    async def find_node(self) -> None:
        """Learn whether an own Node that seems to be missing cannot be read. Never raises."""
        unreadable = ""
        if not self.has_node(self._node):
            try:
                async with asyncio.timeout(FIND_SECONDS):
                    await self._store.get(ResourceKey("Node", self._node))
            except InvalidValue as error:
                unreadable = f"it cannot be read: {error}"
            except (DatastoreError, TimeoutError):
                pass  # the call that needs the Node reports the datastore's trouble
        self.unreadable = unreadable

    def pod_cidrs(self, node: str) -> list[str]:
        """The networks that the node's resource reserves for its pods, if any."""
        return self._pod_cidrs.get(ResourceKey("Node", node), [])

    async def require_ready(self, patience: float) -> None:
        """Raise CNIError 11 unless the datastore was read and says that it is ready (CAL-26)."""
        if not self.in_sync:
            try:
                async with asyncio.timeout(patience):
                    await self._in_sync.wait()
            except TimeoutError:
                raise CNIError(
                    Code.TRY_AGAIN_LATER, "the datastore has not answered yet, try again later"
                ) from None
        if self._ready is None:
            raise CNIError(
                Code.TRY_AGAIN_LATER,
                "error getting ClusterInformation: it does not exist; is calico-node running?",
            )
        if not self._ready:
            raise CNIError(
                Code.TRY_AGAIN_LATER,
                "Calico is currently not ready to process requests",
                "ClusterInformation default says datastoreReady false (a migration, perhaps)",
            )

    async def require_settled(self, patience: float) -> None:
        """Raise CNIError 11 while an address that looks free may be a running pod's (CNI-103).

        A connection that broke may lead to another store: its watch tells, and is waited for.
        """
        if not self.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while not self.connected:  # noqa: ASYNC110 - the event is the reporter's
                        await asyncio.sleep(0.02)
        if left := self.settling:
            raise CNIError(
                Code.TRY_AGAIN_LATER,
                "the datastore was put back to an earlier state, and nodes put back their pods:"
                f" try again in {left:.0f} s",
            )

    async def run(self) -> None:
        """Follow the datastore until cancelled."""
        async for batch in self._syncer.batches():
            for update in batch.updates:
                self._take(update.key, update.entry)
            if batch.in_sync:
                await self.find_node()
                self._in_sync.set()

    def _take(self, key: Key, entry: Entry | None) -> None:
        if isinstance(key, IPAMConfigKey):
            if entry is None and self._config != DEFAULT_IPAM_CONFIG:
                log.warning("the settings of the allocator were deleted: the defaults count")
            self._config = entry.value if entry else DEFAULT_IPAM_CONFIG
        if isinstance(key, AffinityKey) and key.kind == "host" and entry is None:
            self._claim_lost(key.cidr)
        if not isinstance(key, ResourceKey):
            return
        if key.kind == "IPPool":
            self._pools.pop(key, None)
            for pool in usable([entry] if entry else []):
                self._pools[key] = pool
        elif key.kind == "IPReservation":
            self._reserved[key] = reserved_networks([entry.value] if entry else [])
        elif key.kind == "Node":
            before = self._labels.pop(key, None)
            self._pod_cidrs.pop(key, None)
            if entry is not None:
                self._labels[key] = dict(entry.value.metadata.labels)
                self._pod_cidrs[key] = list(entry.value.status.podCIDRs)
                # One that was deleted and made anew while nothing was heard is one change here.
                known, self._node_uid = self._node_uid, entry.value.metadata.uid
                if before is None or self._node_uid != known:
                    self.node_came()
        elif key == READY_KEY:
            self._ready = bool(entry.value.spec.datastoreReady) if entry else None


def _tunnels(pool: Pool) -> list[str]:
    vxlan = "vxlan.calico" if pool.family == 4 else "vxlan-v6.calico"
    return ["tunl0"] * pool.ipip + [vxlan] * pool.vxlan
