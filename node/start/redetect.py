"""Re-detection of the node's addresses while it runs: a change is stored once it is certain.

An address changes when an interface is renumbered or a mask corrected, and peers and tunnels of
every other node follow the stored one. So a change counts only if the kernel shows it twice,
`CONFIRM` seconds apart. A machine that has no address for a moment (an interface that is down, a
DHCP client between two leases) keeps the stored one. Kernel events start a look at the addresses;
so does AUTODETECT_POLL_INTERVAL, for changes without an event.

Connections from an address that is gone hang until their keepalive ends, tens of seconds. So each
look connects to the datastore anew. Once a change is stored the agents are restarted: that costs no
packet (docs/architecture.md), and they connect at once.

Only detected addresses are detected again: `autodetect`, and the mask of an address that was set by
hand without one.
Source: docs/reference/data-model.md#environment-of-a-node, #start-of-a-node. Tested in
tests/node/test_redetect.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreError, MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import beside
from libcalico.process.waiting import set_within
from linux import monitor
from linux.monitor.events import AddressChanged, Overrun
from linux.netlink.filters import WITHOUT_LINK_LOCAL
from node.identity import autodetect, kubernetes, life, registration
from node.identity.autodetect import IPAddress
from node.settings.environment import AddressSetting, IPInterface, Settings
from node.start import addresses
from node.start.addresses import Machine
from node.start.node_object import write

log = logging.getLogger(__name__)

CONFIRM = 2.0
"""Seconds between the two looks that must agree."""
FIRST_RETRY = 1.0

ByFamily = dict[int, IPInterface]


async def keep(
    environ: Mapping[str, str],
    name: str,
    chosen: Settings,
    gone: Callable[[], None] = lambda: None,
) -> None:
    """Keep the stored addresses of a registered node right, for ever.

    `gone` is called when a stored address was replaced and is not on this machine any more.
    """
    if (
        not any(followed(setting) for _, setting in addresses.by_family(chosen))
        or chosen.backend == "none"
    ):
        return
    config = apiconfig.of_node(environ)

    async def internal() -> tuple[IPAddress, ...] | None:
        kubernetes_name = chosen.kubernetes_name(name)
        facts = await kubernetes.read(environ, config, kubernetes_name, node_only=True)
        return None if facts.problem else facts.internal

    source = internal if asks_kubernetes(chosen) else None

    async def own_name(store: Datastore) -> None:
        await life.require_own_name(environ, config, store, name)

    await Watcher(lambda: connect(config), name, chosen, source, gone, own_name=own_name).run()


def followed(setting: AddressSetting) -> bool:
    """Whether the address of this setting may change by itself."""
    return setting.mode == "autodetect" or (setting.mode == "explicit" and not setting.has_mask)


def asks_kubernetes(chosen: Settings) -> bool:
    """Whether an InternalIP could be chosen."""
    return any(addresses.asks_kubernetes(setting) for _, setting in addresses.by_family(chosen))


class Watcher:
    """Follows the kernel's addresses. `looked` counts the looks, `changed` the stored changes."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Datastore]],
        name: str,
        chosen: Settings,
        internal: Callable[[], Awaitable[tuple[IPAddress, ...] | None]] | None = None,
        gone: Callable[[], None] = lambda: None,
        confirm: float = CONFIRM,
        own_name: Callable[[Datastore], Awaitable[None]] | None = None,
    ) -> None:
        """`own_name` raises MuslinError when the Node is another machine's (NODE-3)."""
        self._own_name = own_name
        self._connect, self._name, self._chosen, self._gone = connect, name, chosen, gone
        self._source = internal
        self._internal: tuple[IPAddress, ...] = ()
        self._silent = False
        self._confirm, self._logged = confirm, ""
        self.looked = self.changed = 0

    async def run(self) -> None:
        """Look after kernel events, and now and then; returns only by cancellation."""
        with monitor.Monitor(monitor.ADDRESSES, only=WITHOUT_LINK_LOCAL) as kernel:
            news = asyncio.Event()
            backoff = Backoff(FIRST_RETRY, self._chosen.poll_seconds)
            async with beside(_listen(kernel, news)):
                while True:
                    news.clear()
                    if await self._try():
                        backoff.reset()
                        wait = self._chosen.poll_seconds
                    else:
                        wait = backoff.next()
                    await set_within(news, wait)

    async def _try(self) -> bool:
        try:
            store = await self._connect()
            try:
                await self._look(store)
            finally:
                await store.close()
        except MuslinError as error:
            self._log_change(f"the stored addresses stay: {error}")
            return False
        self._log_change("")
        return True

    async def _look(self, store: Datastore) -> None:
        """Compare the kernel with the datastore; store what changed. Raises MuslinError."""
        if self._source is not None:
            # An API that does not answer changes no address.
            internal = await self._source()
            self._internal = internal or self._internal
            self._silent = internal is None and not self._internal
        entry = await store.get(ResourceKey.to(Node, self._name))
        self.looked += 1
        if entry is None:
            return
        stored = entry.value
        moved, _ = await self._moved(stored)
        if not moved:
            return
        await asyncio.sleep(self._confirm)
        sure, machine = await self._moved(stored)
        if sure != moved:
            log.info("the node's address changed and changed again: looking once more")
            sure, machine = await self._settle(stored, sure)
        if not sure:
            return
        shown = autodetect.shown(machine.interfaces)
        node = registration.desired(
            stored, self._name, self._chosen, sure.get(4), sure.get(6), shown
        )
        if self._own_name is not None:
            await self._own_name(store)
        if not await write(store, entry, node, self._chosen):
            raise DatastoreError(f"Node({self._name}) changed meanwhile")
        self.changed += 1
        for version in sure:
            known = registration.stored_address(stored, version)
            if known is not None and not _is_here(known, machine):
                self._gone()
                return

    async def _settle(self, stored: Node, last: ByFamily) -> tuple[ByFamily, Machine]:
        while True:
            await asyncio.sleep(self._confirm)
            now, machine = await self._moved(stored)
            if now == last:
                return now, machine
            last = now

    async def _moved(self, stored: Node) -> tuple[ByFamily, Machine]:
        """The addresses that differ from the stored ones, and the machine that has them."""
        machine, moved = await addresses.look(self._internal, self._silent), ByFamily()
        for version, setting in addresses.by_family(self._chosen):
            known = registration.stored_address(stored, version)
            if not followed(setting):
                continue
            choice = await addresses.again(setting, version, machine, known)
            if choice is None or choice.address == known:
                continue
            if setting.mode == "explicit" and not _is_here(choice.address, machine):
                # The address left the machine with its mask: the stored mask was the real one.
                continue
            log.info(
                "IPv%d: %s is stored, now it would be %s: %s",
                *(version, known, choice.address, choice.why),
            )
            moved[version] = choice.address
        return moved, machine

    def _log_change(self, trouble: str) -> None:
        if trouble and trouble != self._logged:
            log.warning("%s", trouble)
        self._logged = trouble


def _is_here(address: IPInterface, machine: Machine) -> bool:
    version = address.version
    return any(address.ip == one.ip for one in autodetect.local(machine.interfaces, version))


async def _listen(kernel: monitor.Monitor, news: asyncio.Event) -> None:
    async for batch in kernel.batches():
        for event in batch:
            if isinstance(event, Overrun) or (
                isinstance(event, AddressChanged)
                and autodetect.is_global(event.address.interface.ip)
            ):
                news.set()
