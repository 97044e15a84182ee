"""Felix audits itself: is the node as the datastore says? It reads by other means than it writes.

An audit is slow and writes nothing. It compares:
  - the version of each endpoint that counts with the datastore's last one;
  - the pods' links with the endpoints that name them;
  - the kernel's route to each address of an endpoint in force, one question each;
  - the endpoints with what the main loop has brought into force;
  - the chains that two read-backs of the rules in succession saw changed.

A difference in one audit may be a change under way. One that two audits in succession see is a
condition and counts in a metric, until an audit does not see it any more.

Invariants (tests/felix/reports/test_audit.py):
  AUD-1  An audit writes nothing. It asks the kernel once for each address of an endpoint in force.
  AUD-2  A difference is a condition if the last two audits saw it.
  AUD-4  A release that waits in cni's journal is a condition, and counts in no metric.
  AUD-3  An offer that is not said to be stored, though the datastore has named its container for
         two audits, ends (felix.calc.standing: a program that forgot to say so).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from socket import if_indextoname
from typing import NamedTuple

from felix.calc.endpoints import Endpoint
from felix.calc.local_endpoints import LocalEndpoints
from felix.dataplane.loop import Dataplane
from linux import routes
from linux.errors import KernelError
from linux.netlink.socket import Socket

IPAddress = IPv4Address | IPv6Address
INTERVAL = 60.0
"""Seconds between two audits; a little more by chance, so that nodes do not look together."""
AT_ONCE = 20
"""Endpoints that are compared without a pause."""
_UNCLAIMED = (
    "no endpoint names it, so its pod is cut off: was its WorkloadEndpoint deleted? Restart the"
    " pod; if none is left, delete the interface"
)
_WAITS = (
    "its pod was deleted, and the release waits in calico-cni's journal until the datastore takes"
    " it (metric calico_cni_pending_deletes)"
)
RouteLookup = Callable[[IPAddress], str | None]
"""The name of the link to which the kernel routes an address, None without a route.

Raises `KernelError` or `OSError`."""

log = logging.getLogger(__name__)


class Difference(NamedTuple):
    """An object that is not as the datastore says, and how it differs."""

    object: str
    reason: str


def unlike_datastore(endpoints: LocalEndpoints) -> Iterator[Difference]:
    """Endpoints whose version in use is not the datastore's last one."""
    for key, standing in list(endpoints.standings()):
        if not standing.difference:
            continue
        stored = standing.stored
        if stored is not None and stored.container_id in endpoints.unreleased:
            yield Difference(str(key), _WAITS)
        else:
            yield Difference(str(key), standing.difference)


def unenforced(plane: Dataplane) -> Iterator[Difference]:
    """Endpoints of a container that the main loop has not brought into force as they are now."""
    for endpoint in list(plane.state.active.values()):
        if not endpoint.container_id or plane.state.in_force.get(endpoint.key) == endpoint:
            continue
        if endpoint.container_id in plane.calc.endpoints.unreleased:
            # Queued while calico-cni was away: its link is gone, and the offer is not retracted
            # yet.
            yield Difference(str(endpoint.key), _WAITS)
        else:
            yield Difference(str(endpoint.key), "is not in force in the kernel")


def unclaimed_links(plane: Dataplane) -> Iterator[Difference]:
    """Links of pods that no endpoint names: such a pod has neither rules nor a route."""
    known = {endpoint.interface for endpoint in plane.state.active.values()}
    for index, link in list(plane.view.links.items()):
        if link.up and plane.view.is_workload(index) and link.name not in known:
            yield Difference(f"interface {link.name}", _UNCLAIMED)


def misrouted(endpoint: Endpoint, lookup: RouteLookup) -> Iterator[Difference]:
    """Addresses of an endpoint in force that the kernel routes to another link."""
    for network in endpoint.networks:
        address = network.network_address
        try:
            link = lookup(address)
        except (KernelError, OSError) as error:
            yield Difference(str(endpoint.key), f"the kernel's way to {address}: {error}")
            continue
        if link != endpoint.interface:
            where = link or "nowhere"
            text = f"the kernel leads {address} to {where}, not to {endpoint.interface}"
            yield Difference(str(endpoint.key), text)


def rewritten(plane: Dataplane) -> Iterator[Difference]:
    """Chains that the last two read-backs found changed."""
    if plane.rules.tables is not None:
        for name in sorted(plane.rules.tables.drift.lasting):
            yield Difference(f"chain {name}", "changed by another program again and again")


def kernel_lookup(sock: Socket) -> RouteLookup:
    """The `RouteLookup` of the kernel behind a socket."""

    def interface_of(address: IPAddress) -> str | None:
        route = routes.lookup(sock, address)
        if route is None or not route.next_hops:
            return None
        return if_indextoname(route.next_hops[0].oif)

    return interface_of


class Audit:
    """The audits of one felix. `lasting`: the differences that the last two saw."""

    def __init__(self, plane: Dataplane, lookup: Callable[[], RouteLookup] | None = None) -> None:
        self._plane, self._lookup = plane, lookup
        self._seen: set[Difference] = set()
        self._sock: Socket | None = None
        self.lasting: set[Difference] = set()
        self.audits = 0
        self.seconds = 0.0
        """Processor time of all audits."""

    async def run(self) -> None:
        """Audit again and again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(INTERVAL * random.uniform(1.0, 1.1))
                if self._plane.state.applied:
                    await self.look()
        finally:
            if self._sock is not None:
                self._sock.close()

    async def look(self) -> None:
        """One audit."""
        seen: set[Difference] = set()
        for differences in self._looking():
            seen.update(differences)
            # Let the main loop do its work.
            await asyncio.sleep(0)
        self.audits += 1
        lasting = seen & self._seen
        for one in sorted(lasting - self.lasting):
            about = {"object": one.object}
            log.warning("not as the datastore says, and it lasts: %s", one.reason, extra=about)
        for gone in sorted(self.lasting - lasting):
            log.info("no longer so: %s", gone.reason, extra={"object": gone.object})
        self._overrule({one.object for one in lasting})
        self._seen, self.lasting = seen, lasting

    def _looking(self) -> Iterator[list[Difference]]:
        """The steps of an audit."""
        plane = self._plane
        yield self._timed(unlike_datastore(plane.calc.endpoints))
        yield self._timed(unenforced(plane))
        yield self._timed(unclaimed_links(plane))
        yield self._timed(rewritten(plane))
        lookup = self._lookup() if self._lookup is not None else self._kernel()
        in_force = list(plane.state.in_force.values())
        for start in range(0, len(in_force), AT_ONCE):
            # An endpoint that has gone meanwhile rightly has no route any more.
            some = [e for e in in_force[start : start + AT_ONCE] if self._stands(e)]
            yield self._timed(one for endpoint in some for one in misrouted(endpoint, lookup))

    def _stands(self, endpoint: Endpoint) -> bool:
        return self._plane.state.in_force.get(endpoint.key) is endpoint

    def _timed(self, differences: Iterator[Difference]) -> list[Difference]:
        began = time.thread_time()
        try:
            return list(differences)
        finally:
            self.seconds += time.thread_time() - began

    def _kernel(self) -> RouteLookup:
        if self._sock is None:
            self._sock = Socket()
        return kernel_lookup(self._sock)

    def _overrule(self, lasting: set[str]) -> None:
        """AUD-3."""
        endpoints = self._plane.calc.endpoints
        for key, standing in list(endpoints.standings()):
            if str(key) in lasting and standing.unstored and endpoints.overrule(key):
                log.error(
                    "an offer was stored and never said to be: the datastore counts now",
                    extra={"object": str(key)},
                )
                self._plane.kick_some()

    def conditions(self) -> list[tuple[str, str]]:
        """The lasting differences: (object, reason)."""
        return sorted(self.lasting)

    @property
    def wrong(self) -> int:
        """How many of the lasting differences are a fault of this node (AUD-4)."""
        return sum(one.reason != _WAITS for one in self.lasting)
