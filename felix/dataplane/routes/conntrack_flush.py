"""Connections of an address that left: forgotten before the address gets a new route.

A new pod that takes a departed pod's address must not inherit its connections, which would
pass as established. So the flows are deleted in the background, and a route to that address
is held back until they are gone (docs/reference/dataplane.md#route-conflicts).

Invariant:
  FLS-1  An address is held from the moment its pod left until its flows are deleted.
Tested in tests/felix/dataplane/test_dataplane_parts.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from ipaddress import IPv4Address, IPv6Address

from felix.calc.endpoints import Endpoint
from libcalico.process import tasks
from libcalico.process.summaries import Summary
from libcalico.process.tasks import ended
from linux import conntrack

IPAddress = IPv4Address | IPv6Address
Delete = Callable[[Iterable[IPAddress]], Awaitable[None]]

log = logging.getLogger(__name__)


def departed(before: Mapping[str, Endpoint], after: Mapping[str, Endpoint]) -> set[IPAddress]:
    """Addresses that no endpoint has any more, or that another container has now."""
    holders = {
        network.network_address: endpoint.container_id
        for endpoint in after.values()
        for network in endpoint.networks
    }
    return {
        network.network_address
        for endpoint in before.values()
        for network in endpoint.networks
        if holders.get(network.network_address) != endpoint.container_id
    }


class ConntrackFlusher:
    """Deletes flows in the background; `done` is called after each batch.

    `waits`: seconds for which the addresses of each batch were held.
    """

    def __init__(self, done: Callable[[], None], delete: Delete | None = None) -> None:
        self._done, self._delete = done, delete or conntrack.Forgetter().forget
        self.waits = Summary()
        self._tasks: dict[asyncio.Task[None], frozenset[IPAddress]] = {}

    @property
    def held(self) -> frozenset[IPAddress]:
        """Addresses whose flows are still being deleted."""
        return frozenset().union(*self._tasks.values())

    def left(
        self,
        before: Mapping[str, Endpoint],
        after: Mapping[str, Endpoint],
        about: Iterable[str] | None = None,
        spared: Set[IPAddress] = frozenset(),
    ) -> None:
        """Endpoints changed from `before` to `after`; `about`: no others than these; `spared`:
        addresses whose flows another program deleted once packets found no way to them.
        """
        if before is after:
            return
        names = before if about is None else [name for name in about if name in before]
        gone = {name: before[name] for name in names if after.get(name) != before[name]}
        if gone:
            self.flush(departed(gone, after) - spared)

    def flush(self, addresses: Iterable[IPAddress]) -> None:
        """Delete the flows of these addresses, unless that is under way."""
        departed_now = frozenset(addresses) - self.held
        if departed_now:
            task = tasks.start(self._run(departed_now), "removal of old connections")
            self._tasks[task] = departed_now
            task.add_done_callback(self._finished)

    async def _run(self, addresses: frozenset[IPAddress]) -> None:
        began = time.monotonic()
        try:
            await self._delete(addresses)
        except Exception as error:  # noqa: BLE001 - told; the route must come back
            # The route must come back even so: new connections are judged by the rules anyway.
            log.warning("old connections could not be removed: %s", error)
        self.waits.observe(time.monotonic() - began)

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._done()

    async def stop(self) -> None:
        """Wait for nothing: cancel what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await ended(tasks)
