"""The addresses of this node's tunnels: assigned before felix needs them, kept while pools ask.

A pool that is switched to IP-in-IP or VXLAN makes every node assign an address for that tunnel and
write it in its Node resource; other nodes send nothing into a tunnel whose address they do not
know. So this process follows pools and the own Node, and calls the allocator (`ipam.admin.tunnels`)
when one of them changes. An error is logged once and tried again with back-off; nothing else on the
node waits for it.

Other nodes send into the tunnel as soon as they see its address. So a new address is published only
when felix has made the device, which follows the same pool. On a machine that cannot have the
device it never is: the log says so here, felix's condition says why. A felix of another program
(CALICO_DISABLE_FELIX) may itself wait for the address, so then the device is not waited for.

A published address is withdrawn when its device has been missing for a while: after a start with a
kernel that no longer has it, or when it was removed and felix cannot make it again. Other nodes
would go on sending into a tunnel that is not unwrapped.

Invariants:
  TAD-2  An address whose device is missing for `MISSING` seconds is withdrawn, and told again
         (perhaps another) as by TAD-1 when the device is there.
  TAD-1  An address is told first when its device unwraps; the other tunnels do not wait for it.
Source: docs/reference/data-model.md#tunnel-addresses,
docs/reference/dataplane.md#tunnel-devices-addresses. Tested in tests/node/test_tunnel_addresses.py.
"""

from __future__ import annotations

import asyncio
import functools
import logging

from msgspec.structs import replace

from ipam.admin.tunnel_decision import asking
from ipam.admin.tunnels import (
    IPIP,
    TUNNELS,
    VXLAN,
    VXLAN_V6,
    Tunnel,
    ensure_tunnel_address,
    withdraw_tunnel_address,
)
from ipam.records.blocks import IPAddress
from ipam.records.pools import usable
from libcalico import apiconfig
from libcalico.datastore import UNHURRIED, connect
from libcalico.datastore.interface import Datastore, Selection
from libcalico.datastore.syncer import Syncer, Update
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.process.backoff import Backoff
from libcalico.process.waiting import set_within
from linux import links
from linux.errors import KernelError
from linux.netlink import Socket

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.5, 30.0
PATIENCE, LOOK, LATER_LOOK = 2.0, 0.02, 1.0
"""Seconds in which felix's device is expected; seconds between two looks then, and later."""
MISSING = 60.0
"""Seconds for which the device of a published address may be missing, as while felix starts."""
_WITHDRAWN = "tunnel addresses: %s has been missing for %d s: its address is withdrawn"
_AWAITED = "no address is told before its device is up: {}; told so far: {}"
_DEVICES: dict[Tunnel, str] = {IPIP: "tunl0", VXLAN: "vxlan.calico", VXLAN_V6: "vxlan-v6.calico"}


async def keep(config: apiconfig.DatastoreConfig, node: str, *, devices: bool = True) -> None:
    """Keep the tunnel addresses of a registered node right, for ever.

    `devices`: felix makes the devices before they have an address.
    """
    store = await connect(config, gather=UNHURRIED)
    try:
        await Keeper(store, node, devices=devices).run()
    finally:
        await store.close()


class Keeper:
    """Follows pools and the own Node. `settled` counts the rounds without an error."""

    def __init__(self, store: Datastore, node: str, *, devices: bool = True) -> None:
        self._store, self._node, self._devices = store, node, devices
        self._changed = asyncio.Event()
        self._logged = ""
        self._recorded: set[str] = set()
        """The devices of the addresses that the Node names."""
        self._lost: dict[str, float] = {}
        """Since when devices of recorded addresses are missing."""
        self._own: object = None
        """The fields of the own Node that count, as of its last event."""
        self.settled = 0

    async def run(self) -> None:
        """Follow and ensure; returns only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._ensure())
            if self._devices:
                group.create_task(self._look_after())

    async def _follow(self) -> None:
        own = Selection("Node", host=self._node)
        async for batch in Syncer(self._store, [Selection("IPPool"), own]).batches():
            # Call it for every update, because it remembers each.
            if sum(self._matters(update) for update in batch.updates) and batch.in_sync:
                self._changed.set()

    def _matters(self, update: Update) -> bool:
        """Whether an update may change addresses; a heartbeat does not, for it changes no field."""
        if isinstance(update.key, ResourceKey) and update.key.kind == "Node":
            return update.key.name == self._node and self._is_new(update)
        return True

    def _is_new(self, update: Update) -> bool:
        value = update.entry.value if update.entry else None
        before, self._own = self._own, None
        self._recorded = set()
        if value is not None:
            self._recorded = {name for t, name in _DEVICES.items() if t.recorded(value)}
            spec = replace(value.spec, addresses=[], interfaces=[])
            self._own = value.metadata.labels, spec, value.status
        return before != self._own

    async def _ensure(self) -> None:
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        # Once without an event: the first batch may be empty.
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                addresses, awaited = await self._ensure_once()
            except MuslinError as error:
                self._log_change(str(error))
                await set_within(self._changed, backoff.next())
                self._changed.set()
                continue
            backoff.reset()
            self.settled += 1
            have = {tunnel.attribute: address for tunnel, address in addresses.items() if address}
            listed = [f"{name} {address}" for name, address in have.items()]
            if awaited:
                self._log_change(
                    _AWAITED.format(", ".join(sorted(awaited)), "; ".join(listed) or "none")
                )
                await self._until_up(awaited)
            else:
                self._log_change(", ".join(listed), good=True)

    async def _ensure_once(self) -> tuple[dict[Tunnel, IPAddress | None], set[str]]:
        """The addresses of now, and the devices that unpublished ones wait for (TAD-1)."""
        expected = await self._awaited() if self._devices else {}
        if expected:
            # Felix follows the same pools: its device is mostly there in a moment.
            await self._until_up(set(expected.values()), PATIENCE)
        awaited: set[str] = set()

        def ready(tunnel: Tunnel) -> bool:
            # A pool may ask for it only since the read above.
            name = _DEVICES.get(tunnel, "")
            if not name or not self._devices or _is_up(name):
                return True
            awaited.add(name)
            return False

        addresses = {
            tunnel: await ensure_tunnel_address(
                self._store, self._node, tunnel, ready=functools.partial(ready, tunnel)
            )
            for tunnel in TUNNELS
        }
        return addresses, awaited

    async def _awaited(self) -> dict[Tunnel, str]:
        """The devices of the tunnels that are to get a first address."""
        return {t: _DEVICES[t] for t, address in (await self._asked()).items() if not address}

    async def _asked(self) -> dict[Tunnel, str]:
        """The tunnels for which open pools ask, with the address of each in the Node."""
        entry = await self._store.get(ResourceKey("Node", self._node))
        if entry is None:
            return {}
        pools = usable((await self._store.list(Selection("IPPool"))).entries)
        return {
            tunnel: tunnel.recorded(entry.value)
            for tunnel in _DEVICES
            if asking(tunnel, pools, entry.value).open
        }

    async def _look_after(self) -> None:
        """Withdraw addresses whose device stays away (TAD-2)."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LATER_LOOK)
            missing = {name for name in self._recorded if not _is_up(name)}
            now = clock()
            self._lost = {name: self._lost.get(name, now) for name in missing}
            late = {name for name, since in self._lost.items() if now - since >= MISSING}
            if late:
                await self._withdraw(late)

    async def _withdraw(self, devices: set[str]) -> None:
        try:
            asked = await self._asked()
            gone = [t for t, address in asked.items() if address and _DEVICES[t] in devices]
            for tunnel in gone:
                log.warning(_WITHDRAWN, _DEVICES[tunnel], MISSING)
                await withdraw_tunnel_address(self._store, self._node, tunnel)
        except MuslinError as error:
            log.warning("tunnel addresses: not withdrawn: %s", error)
            return
        for name in devices:  # checked again after as long
            self._lost.pop(name, None)
        if gone:
            self._changed.set()

    async def _until_up(self, devices: set[str], limit: float | None = None) -> None:
        """Wait until one of the devices is up (all, with a limit), or something else changed."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while not self._changed.is_set():
            up = {name for name in devices if _is_up(name)}
            if limit is None and up:
                self._changed.set()
                return
            if limit is not None and (up == devices or clock() - began > limit):
                return
            await asyncio.sleep(LOOK if clock() - began < PATIENCE else LATER_LOOK)

    def _log_change(self, text: str, *, good: bool = False) -> None:
        if text == self._logged:
            return
        self._logged = text
        if good:
            log.info("tunnel addresses: %s", text or "none are asked for")
        else:
            log.warning("tunnel addresses: %s", text)


def _is_up(name: str) -> bool:
    try:
        with Socket() as sock:
            link = links.get(sock, name)
    except KernelError:
        return False
    return link is not None and link.up
