"""Felix looks at itself: whether the node is as the datastore says, by other means than those by
which it writes.

Slowly, and without writing: what counts of each endpoint against what the datastore said of it
last; the pods' links that no endpoint names; the kernel's own way to each address of an endpoint in
force (one question each, whatever the table's size); what the main loop never brought into force;
and what the read-backs of rules, which run anyway, found changed twice in succession.

A difference in one audit may be a change under way. One that two audits in succession see is a
condition and counts in a metric, until an audit does not see it any more.

Invariants (tests/felix/reports/test_audit.py):
  AUD-1  An audit writes nothing. It asks the kernel once for each address of an endpoint in force.
  AUD-2  A difference is told if the last two audits saw it.
  AUD-4  What waits in cni's journal for the datastore is told, and counts in no metric.
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
"""So many endpoints are looked at without a pause."""
_NOBODYS = (
    "no endpoint names it, so its pod is cut off: was its WorkloadEndpoint deleted? Restart the"
    " pod; if none is left, delete the interface"
)
_WAITS = (
    "its pod was deleted, and the release waits in calico-cni's journal until the datastore takes"
    " it (metric calico_cni_pending_deletes)"
)
Ways = Callable[[IPAddress], str | None]
"""Where the kernel leads an address: the name of a link, None for nowhere. Raises KernelError or
OSError."""

log = logging.getLogger(__name__)


class Difference(NamedTuple):
    """What is not as the datastore says: an object, and how."""

    object: str
    reason: str


def unlike_datastore(endpoints: LocalEndpoints) -> Iterator[Difference]:
    """Endpoints of which something else counts than the datastore's last word."""
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
            # Queued while calico-cni was away: its link is gone, and nobody retracted it yet.
            yield Difference(str(endpoint.key), _WAITS)
        else:
            yield Difference(str(endpoint.key), "is not in force in the kernel")


def nobodys(plane: Dataplane) -> Iterator[Difference]:
    """Links of pods that no endpoint names: such a pod has neither rules nor a route."""
    known = {endpoint.interface for endpoint in plane.state.active.values()}
    for index, link in list(plane.view.links.items()):
        if link.up and plane.view.is_workload(index) and link.name not in known:
            yield Difference(f"interface {link.name}", _NOBODYS)


def astray(endpoint: Endpoint, way: Ways) -> Iterator[Difference]:
    """Addresses of an endpoint in force that the kernel leads elsewhere."""
    for network in endpoint.networks:
        address = network.network_address
        try:
            found = way(address)
        except (KernelError, OSError) as error:
            yield Difference(str(endpoint.key), f"the kernel's way to {address}: {error}")
            continue
        if found != endpoint.interface:
            where = found or "nowhere"
            text = f"the kernel leads {address} to {where}, not to {endpoint.interface}"
            yield Difference(str(endpoint.key), text)


def rewritten(plane: Dataplane) -> Iterator[Difference]:
    """Chains that the last two read-backs found changed."""
    if plane.rules.tables is not None:
        for name in sorted(plane.rules.tables.drift.lasting):
            yield Difference(f"chain {name}", "changed by another program again and again")


def kernels_way(sock: Socket) -> Ways:
    """`Ways` of the kernel that a socket leads to, which is this process's."""

    def way(address: IPAddress) -> str | None:
        route = routes.lookup(sock, address)
        if route is None or not route.next_hops:
            return None
        return if_indextoname(route.next_hops[0].oif)

    return way


class Audit:
    """The audits of one felix. `lasting`: what the last two saw, reason by object."""

    def __init__(self, plane: Dataplane, ways: Callable[[], Ways] | None = None) -> None:
        self._plane, self._ways = plane, ways
        self._seen: set[Difference] = set()
        self._sock: Socket | None = None
        self.lasting: set[Difference] = set()
        self.audits = 0
        self.seconds = 0.0
        """Processor time that all of them took."""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
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
        for found in self._looking():
            seen.update(found)
            # The main loop has its work.
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
        yield self._timed(nobodys(plane))
        yield self._timed(rewritten(plane))
        way = self._ways() if self._ways is not None else self._kernel()
        in_force = list(plane.state.in_force.values())
        for start in range(0, len(in_force), AT_ONCE):
            # One that has gone meanwhile has no way any more, rightly.
            some = [e for e in in_force[start : start + AT_ONCE] if self._stands(e)]
            yield self._timed(one for endpoint in some for one in astray(endpoint, way))

    def _stands(self, endpoint: Endpoint) -> bool:
        return self._plane.state.in_force.get(endpoint.key) is endpoint

    def _timed(self, found: Iterator[Difference]) -> list[Difference]:
        began = time.thread_time()
        try:
            return list(found)
        finally:
            self.seconds += time.thread_time() - began

    def _kernel(self) -> Ways:
        if self._sock is None:
            self._sock = Socket()
        return kernels_way(self._sock)

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
        """What lasts, object by object."""
        return sorted(self.lasting)

    @property
    def wrong(self) -> int:
        """How much of what lasts is a fault of this node (AUD-4)."""
        return sum(one.reason != _WAITS for one in self.lasting)
