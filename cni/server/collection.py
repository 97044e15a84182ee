"""The node's own collector inside the daemon: at start, and when the runtime calls GC.

`ipam.collector.collector` decides and releases; here are the eyes (the host's links, the runtime's
sandbox list, the calls in progress), the log lines and the metrics. Each address that goes is
named with the proof; each endpoint that lost its address is reported and left alone.

Invariants (tests/cni/test_collection.py): IPAM-20 to IPAM-25, and
  CNI-70  A container with a call in progress is left to that call.
  CNI-71  A sweep that could not look everywhere is repeated, with back-off, until it could or a
          newer list of the same network came.
  CNI-72  A list of valid attachments says nothing about a container with a call after it came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from cni.node.daemon_context import DaemonContext
from cni.node.own_machine import why_foreign
from cni.server.server import Server
from ipam.collector.collector import GAP_SECONDS, Collector, Sweep
from ipam.collector.leak_evidence import LeakEvidence, Listed
from ipam.records.blocks import IPAddress
from libcalico.cri import CRISandboxes, NoSandboxes, SandboxSource
from libcalico.errors import MuslinError
from libcalico.process.backoff import Backoff
from libcalico.process.counters import Counter, Gauge
from linux import conntrack, links
from linux.errors import KernelError
from linux.netlink import Socket

log = logging.getLogger(__name__)

COLLECTED = Counter("calico_cni_ipam_collected", "Addresses of dead containers released")
SUSPECTS = Gauge("calico_cni_ipam_suspects", "Containers found dead by the first look")
WIDOWED = Gauge("calico_cni_ipam_endpoints_without_address", "Endpoints whose address is gone")
SWEEPS = Counter("calico_cni_ipam_sweeps", "Sweeps of the collector by outcome", ["outcome"])

RETRIES = 8


class Collection:
    """Runs sweeps one after another; `collect` asks for one more."""

    def __init__(
        self,
        context: DaemonContext,
        server: Server,
        sandboxes: SandboxSource | None = None,
        gap: float = GAP_SECONDS,
    ) -> None:
        self._context, self._server = context, server
        socket = context.settings.cri_socket
        self._sandboxes = sandboxes or (CRISandboxes(socket) if socket else NoSandboxes())
        self._asked: list[Listed | None] = []
        self._wake = asyncio.Event()
        server.dispatcher.collect = self.collect
        self.foreign = ""
        """Why this machine is not the node that it is called, and nothing is collected."""
        self._collector = Collector(
            context.store,
            context.node,
            self._observe,
            container_lock=server.container_lock,
            flush=self._flush,
            foreign=self._foreign,
            gap=gap,
        )

    def collect(self, network: str, valid: Iterable[str]) -> None:
        """CNI GC: the runtime says which containers of a network have valid attachments.

        Returns at once; the sweep looks twice, `gap` seconds apart. A newer list of the same
        network takes the place of one that waits.
        """
        waiting = [one for one in self._asked if one is None or one.network != network]
        self._asked = [*waiting, Listed(network, frozenset(valid))]
        if self._server.called is None:
            # The list grows old while it waits its turn: it lacks containers that call from now on.
            self._server.called = set(self._server.busy)
        self._wake.set()

    async def run(self) -> None:
        """Sweep at start and whenever asked, until cancelled."""
        await self._context.cluster.wait_in_sync()
        self._asked.insert(0, None)
        while True:
            while self._asked:
                await self._sweep_until_complete(self._asked.pop(0))
            self._server.called = None
            self._wake.clear()
            await self._wake.wait()

    async def _sweep_until_complete(self, listed: Listed | None) -> None:
        backoff = Backoff(1.0, 60.0)
        tries = 0
        while not await self._sweep(listed):
            tries += 1
            if any(_same(listed, newer) for newer in self._asked):
                return
            if self._asked and tries >= RETRIES:
                self._asked.append(listed)  # the others must not wait for this one for ever
                return
            await backoff.wait()

    async def _sweep(self, listed: Listed | None) -> bool:
        """One sweep; whether it saw everything."""
        if self._context.cluster.locked:
            return False
        try:
            sweep = await self._collector.sweep(listed)
        except (MuslinError, TimeoutError) as error:
            SWEEPS.inc("failed")
            log.warning("the collector could not finish: %s", error)
            return False
        except ValueError as error:
            # A stored object that no check has seen: pods must not go without their daemon for it.
            SWEEPS.inc("failed")
            log.exception("the collector met what it cannot read: %s", error)
            return False
        self._tell(sweep)
        return sweep.complete

    def _tell(self, sweep: Sweep) -> None:
        if sweep.foreign:
            SWEEPS.inc("foreign")
            if sweep.foreign != self.foreign:
                log.error("no address is collected: %s", sweep.foreign)
            self.foreign = sweep.foreign
            return
        self.foreign = ""
        SWEEPS.inc("complete" if sweep.complete else "incomplete")
        SUSPECTS.set(sweep.suspects)
        WIDOWED.set(len(sweep.widowed))
        for collected in sweep.collected:
            for address in collected.addresses:
                COLLECTED.inc()
                log.warning(
                    "address %s collected: %s",
                    address,
                    collected.suspect.reason,
                    extra={
                        "handle": collected.suspect.handle_id,
                        "container": collected.suspect.container_id,
                    },
                )
        for key, address in sweep.widowed:
            log.error(
                "endpoint %s has address %s, which is not allocated to it; it is left alone",
                key,
                address,
            )
        if not sweep.complete:
            log.warning("the collector could not see everything, so it looks again later")

    async def _foreign(self) -> str:
        return await why_foreign(self._context, runtime=self._sandboxes.configured)

    async def _observe(self) -> LeakEvidence:
        if self._context.cluster.locked:
            return LeakEvidence(interfaces=None)  # locked since the sweep began: no node may write
        sandboxes = await self._sandboxes.sandboxes()
        try:
            interfaces = await self._context.in_thread(_interfaces)
        except (KernelError, OSError) as error:
            log.warning("the host's links cannot be read: %s", error)
            interfaces = None
        return LeakEvidence(
            interfaces=interfaces,
            sandboxes=sandboxes,
            sandboxes_configured=self._sandboxes.configured,
            busy=self._server.busy,
            called=frozenset(self._server.called or ()),
        )

    async def _flush(self, addresses: Sequence[IPAddress]) -> None:
        try:
            await conntrack.delete_by_address(list(addresses))
        except (KernelError, OSError) as error:
            log.warning("flows of %s stay: %s", ", ".join(map(str, addresses)), error)


def _same(one: Listed | None, other: Listed | None) -> bool:
    return (one and one.network) == (other and other.network)


def _interfaces() -> frozenset[str]:
    sock = Socket()
    try:
        return frozenset(link.name for link in links.dump(sock))
    finally:
        sock.close()
