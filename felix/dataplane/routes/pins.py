"""Permanent neighbours of workloads that name another MAC than the workload has: they are removed.

The kernel finds a pod's MAC by ARP and neighbour discovery, also when a chained plugin changes it;
so none is set (CHN-08 of the CNI reference). A permanent entry stands above what is found: one
that another agent left, or that was put in by hand, with a wrong MAC, cuts the pod off.

Invariant:
  PIN-1  On the interface of a local endpoint no permanent neighbour for one of its addresses
         names another MAC than the endpoint's: heard of at once, and looked for with the routes.
Tested in tests/felix/kernel/test_repair.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from felix.calc.endpoints import Endpoint, IPAddress
from felix.dataplane.devices.view import KernelView
from linux import neighbours
from linux.monitor import NEIGHBOURS, Monitor
from linux.monitor.events import NeighbourChanged
from linux.neighbours import Neighbour
from linux.netlink import Socket
from linux.netlink.filters import PERMANENT_ONLY

log = logging.getLogger(__name__)


class Pins:
    """Permanent entries that were told of and not judged yet. `repairs` counts those removed."""

    def __init__(self, view: KernelView, changed: Callable[[], None]) -> None:
        self._view, self._changed = view, changed
        self._told: dict[tuple[int, IPAddress], Neighbour] = {}
        self.repairs = 0

    async def watch(self) -> None:
        """Hear of permanent entries, for ever."""
        with Monitor(NEIGHBOURS, only=PERMANENT_ONLY) as monitor:
            async for batch in monitor.batches():
                neighbours = [e.neighbour for e in batch if isinstance(e, NeighbourChanged)]
                if len(neighbours) < len(batch):
                    self._view.stale_routes = True
                    self._view.touched.mark_everything()
                self._take(neighbours)
                self._changed()

    async def read(self, sock: Socket) -> None:
        """Look at all that there are. Raises `KernelError`."""
        self._told.clear()
        self._take(await asyncio.to_thread(neighbours.dump, sock))

    def _take(self, neighbours: list[Neighbour]) -> None:
        for entry in neighbours:
            if not (entry.permanent and entry.mac):
                continue
            self._told[entry.index, entry.address] = entry
            link = self._view.links.get(entry.index)
            if link is not None:
                self._view.touched.mark((link.name,))

    def commit(self, sock: Socket, endpoints: Mapping[str, Endpoint]) -> None:
        """Remove those that are wrong. Raises `KernelError` only when the socket fails."""
        changed, self._told = self._told, {}
        for (index, address), entry in changed.items():
            link = self._view.links.get(index)
            endpoint = endpoints.get(link.name) if link is not None else None
            if link is None or (endpoint is None and self._view.is_workload(index)):
                # Told before its link, or its endpoint, was heard of.
                self._told[index, address] = entry
                continue
            if endpoint is None or not endpoint.mac or entry.mac == endpoint.mac.lower():
                continue
            if all(network.network_address != address for network in endpoint.networks):
                continue
            if sock.transact([neighbours.delete(index, address)])[0].ok:
                self.repairs += 1
                log.warning(
                    "removed: a permanent neighbour %s with %s, which is not the workload's MAC",
                    address,
                    entry.mac,
                    extra={"object": str(endpoint.key)},
                )
