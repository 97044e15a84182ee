"""The addresses of this node's tunnels: had before felix needs them, kept while pools ask.

A pool that is switched to IP-in-IP or VXLAN makes every node take an address for that tunnel
and tell it in its Node resource; other nodes send nothing into a tunnel whose end they do not
know. So this follows pools and the own Node, and asks the allocator (`ipam.tunnels`) whenever
one of them changes. Trouble is said once and tried again with back-off; nothing else on the
node waits for it.

An address that others see is their leave to send into the tunnel. So a new one is taken when
felix has made the device, which follows the same pool; should there be none after `PATIENCE`,
it is taken anyway.
Source: data model 4.9, dataplane 4.6. Tested in tests/node/test_tunnel_addresses.py.
"""

from __future__ import annotations

import asyncio
import logging

from ipam.tunnels import IPIP, VXLAN, VXLAN_V6, Tunnel, eligible, ensure_tunnel_addresses
from libcalico import apiconfig
from libcalico.backoff import Backoff
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import MuslinError
from libcalico.model.keys import Key, ResourceKey
from linux import links
from linux.errors import KernelError
from linux.netlink import Socket

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.5, 30.0
PATIENCE, LOOK = 2.0, 0.02
"""Seconds to wait for felix's device, and between two looks."""
_DEVICES: dict[Tunnel, str] = {IPIP: "tunl0", VXLAN: "vxlan.calico", VXLAN_V6: "vxlan-v6.calico"}


async def keep(config: apiconfig.DatastoreConfig, node: str) -> None:
    """Keep the tunnel addresses of a registered node right, for ever."""
    store = await connect(config)
    try:
        await Keeper(store, node).run()
    finally:
        await store.close()


class Keeper:
    """Follows what tunnel addresses depend on. `settled` counts how often all was right."""

    def __init__(self, store: Datastore, node: str) -> None:
        self._store, self._node = store, node
        self._changed = asyncio.Event()
        self._told = ""
        self.settled = 0

    async def run(self) -> None:
        """Follow and ensure; returns only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._ensure())

    async def _follow(self) -> None:
        own = Selection("Node", name_prefix=self._node)
        async for batch in Syncer(self._store, [Selection("IPPool"), own]).batches():
            if batch.in_sync and any(self._matters(update.key) for update in batch.updates):
                self._changed.set()

    def _matters(self, key: Key) -> bool:
        return isinstance(key, ResourceKey) and (key.kind == "IPPool" or key.name == self._node)

    async def _ensure(self) -> None:
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        # Once without being asked: the first batch may hold nothing.
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._wait_for_devices()
                found = await ensure_tunnel_addresses(self._store, self._node)
            except MuslinError as error:
                self._tell(str(error))
                try:
                    async with asyncio.timeout(backoff.next()):
                        await self._changed.wait()
                except TimeoutError:
                    self._changed.set()
                continue
            backoff.reset()
            self.settled += 1
            have = {tunnel.attribute: address for tunnel, address in found.items() if address}
            self._tell(", ".join(f"{name} {address}" for name, address in have.items()), good=True)

    async def _wait_for_devices(self) -> None:
        """Until the device of each tunnel that is to have a first address unwraps."""
        entry = await self._store.get(ResourceKey("Node", self._node))
        if entry is None:
            return
        pools = [one.value for one in (await self._store.list(Selection("IPPool"))).entries]
        wanted = {
            device
            for tunnel, device in _DEVICES.items()
            if not tunnel.recorded(entry.value) and eligible(tunnel, pools, entry.value)
        }
        deadline = asyncio.get_running_loop().time() + PATIENCE
        with Socket() as sock:
            while wanted and asyncio.get_running_loop().time() < deadline:
                wanted = {name for name in wanted if not _is_up(sock, name)}
                if wanted:
                    await asyncio.sleep(LOOK)

    def _tell(self, text: str, *, good: bool = False) -> None:
        if text == self._told:
            return
        self._told = text
        if good:
            log.info("tunnel addresses: %s", text or "none are asked for")
        else:
            log.warning("tunnel addresses: %s", text)


def _is_up(sock: Socket, name: str) -> bool:
    try:
        link = links.get(sock, name)
    except KernelError:
        return False
    return link is not None and link.up
