"""The reader of services: EndpointSlices of the Kubernetes API into the calculation.

Only the API knows the endpoints of a service, and most clusters have no rule that names one. So
the API is read only while some policy, profile or staged policy names one, and a while longer, for
policies are often deleted to be made again. Slices stay in force while the API is away (SVC-1);
they are removed only when no rule names a service any more.

A slice that cannot be decoded keeps its last readable version. Where there is none its addresses
are unknown, so no rule relies on services until it can be read or is gone.

When felix starts with such rules its first programming waits `FIRST` seconds for the list: what
the kernel has stays meanwhile, so a restart is not felt.
Tested in tests/apiserver/test_services.py with real packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from felix.calc.services import ServicePort, ServiceSink, ServiceSlice, SliceKey
from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.kubernetes.decoding import NAMELESS
from libcalico.process import tasks
from libcalico.process.backoff import Backoff

if TYPE_CHECKING:
    from libcalico.kubernetes.names import Name
    from libcalico.kubernetes.reflector import Reflector
    from libcalico.kubernetes.service_objects import EndpointSlice

FIRST = 3.0
LINGER = 60.0
NO_ACCESS_INTERVAL = 10.0
"""Seconds: credentials that are not there may come."""

log = logging.getLogger(__name__)


def slice_of(value: EndpointSlice) -> ServiceSlice | None:
    """What counts of a slice; None where it belongs to no service.

    Names (`addressType` FQDN) are no addresses, and a port without number is not told.
    """
    if not value.service:
        return None
    addresses = set()
    for endpoint in value.endpoints or ():
        for text in endpoint.addresses or ():
            with contextlib.suppress(ValueError):
                addresses.add(ip_address(text))
    ports = frozenset(
        ServicePort((one.protocol or "TCP").lower(), one.port)
        for one in value.ports or ()
        if one.port is not None
    )
    return ServiceSlice(value.service, frozenset(addresses), ports)


class ServiceReader:
    """Follows slices into `sink` while they are needed (`want`), and calls `changed`."""

    def __init__(
        self,
        sink: ServiceSink,
        environ: Mapping[str, str],
        changed: Callable[[], None],
        *,
        linger: float = LINGER,
        backoff: Backoff | None = None,
    ) -> None:
        self._sink, self._environ, self._changed, self._linger = sink, environ, changed, linger
        self._wanted = False
        self._moved = asyncio.Event()
        self._known = asyncio.Event()
        self._told: dict[Name, ServiceSlice] = {}
        self._unseen: set[Name] = set()
        self._relied = False
        self._problem = self._failure = ""
        self._reflector: Reflector[EndpointSlice] | None = None
        self._backoff = backoff or Backoff(1.0, 30.0, jitter=0.5)

    def want(self, needed: bool) -> None:
        """Whether some rule names a service."""
        if needed != self._wanted:
            self._wanted = needed
            self._moved.set()

    async def first(self) -> None:
        """Wait until services are known, if they are wanted; `FIRST` seconds at most."""
        if not self._wanted:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST):
                await self._known.wait()

    def conditions(self) -> list[tuple[str, str]]:
        """What keeps rules with services from being what they should, while there are any."""
        if not self._wanted:
            return []
        reader = self._reflector
        error = self._failure or self._problem or (reader.error if reader is not None else "")
        stands = "what was known stays" if self._relied else "such rules stay closed"
        reports = [("Kubernetes API", f"services in rules: {error}; {stands}")] if error else []
        for name, why in (reader.broken if reader is not None else {}).items():
            stays = "its last readable version stays" if name in self._told else stands
            reports.append((f"EndpointSlice({name})", f"cannot be read: {why}; {stays}"))
        return reports

    async def run(self) -> None:
        """Follow while wanted; never ends."""
        while True:
            if not self._wanted:
                self._forget()
                self._moved.clear()
                await self._moved.wait()
                continue
            following = tasks.start(self._follow(), "services in rules")
            try:
                await self._until_unwanted(following)
            finally:
                following.cancel()
                await asyncio.wait({following})
            if following.cancelled():
                continue
            # What reads ended by itself: felix goes on with what was known.
            problem = following.exception()
            self._failure = f"the reader failed and is begun again: {problem!r}"
            log.error("services in rules: %s", self._failure, exc_info=problem)
            await asyncio.sleep(self._backoff.next())

    async def _until_unwanted(self, following: asyncio.Task[None]) -> None:
        while not following.done():
            self._moved.clear()
            moved = tasks.start(self._moved.wait(), "change of services")
            limit = None if self._wanted else self._linger
            try:
                await asyncio.wait({moved, following}, timeout=limit, return_when="FIRST_COMPLETED")
                if not moved.done() and not self._wanted:
                    return
            finally:
                moved.cancel()

    async def _follow(self) -> None:
        # Few nodes have such rules; the rest start without loading a client.
        from libcalico.kubernetes.access import find
        from libcalico.kubernetes.client import Client
        from libcalico.kubernetes.reflector import Reflector
        from libcalico.kubernetes.service_objects import ENDPOINT_SLICES

        while True:
            try:
                source = find(apiconfig.of_node(self._environ), self._environ)
                break
            except MuslinError as error:
                if str(error) != self._problem:
                    log.warning("rules name services: %s", error)
                self._problem = str(error)
            await asyncio.sleep(NO_ACCESS_INTERVAL)
        self._problem = ""
        client = Client(source)
        self._unseen = set(self._told)
        self._reflector = Reflector(client, ENDPOINT_SLICES, self, on_status=self._judge)
        try:
            await self._reflector.run()
        finally:
            await client.close()

    # -- events of the reflector ---------------------------------------------------------------

    def put(self, name: Name, value: EndpointSlice) -> None:
        """Apply a slice."""
        self._unseen.discard(name)
        self._tell(name, slice_of(value))

    def gone(self, name: Name) -> None:
        """Remove a slice."""
        self._tell(name, None)

    def listed(self) -> None:
        """Note that all slices have been listed."""
        self._failure = ""
        self._backoff.reset()
        self._known.set()
        self._judge()

    def _judge(self) -> None:
        """Whether rules may rely on the slices."""
        reader = self._reflector
        if reader is None or not reader.has_listed:
            return
        if NAMELESS not in reader.broken:
            # A reader that was begun again does not know what the one before it told.
            for name in self._unseen - reader.broken.keys():
                self._tell(name, None)
            self._unseen &= reader.broken.keys()
        self._rely(reader.broken.keys() <= self._told.keys())

    def _rely(self, known: bool) -> None:
        if known != self._relied:
            self._relied = known
            log.info("services are %s: %d slices", "known" if known else "unknown", len(self._told))
            if self._sink.services_known(known):
                self._changed()

    def _tell(self, name: Name, value: ServiceSlice | None) -> None:
        # Most changes of a slice are of what does not count here, such as readiness.
        if self._told.get(name) == value:
            return
        if value is None:
            del self._told[name]
        else:
            self._told[name] = value
        if self._sink.put_slice(SliceKey(*name), value):
            self._changed()

    def _forget(self) -> None:
        """Remove all slices: no rule names a service, and no rule may rely on stale ones."""
        self._known.clear()
        self._reflector = None
        self._problem = self._failure = ""
        self._rely(False)
        dirty = False
        for name in list(self._told):
            dirty |= self._sink.put_slice(SliceKey(*name), None)
        self._told.clear()
        if dirty:
            self._changed()
