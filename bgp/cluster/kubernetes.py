"""Services of the Kubernetes API, for `bgp.cluster.services`; Secrets:
`bgp.peering.kubernetes_passwords`.

The API is asked only while ranges of services are announced. Where there is no API, or no right
to read, what needs it is named, and the rest of BGP works on. A task of ours that ends, by a
fault, is noticed: it is logged, a condition, and everything is read anew.

Tested in tests/bgp/test_kubernetes.py and, with a real API server, in
tests/apiserver/test_bgp_sources.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from ipaddress import ip_address

from bgp.cluster.services import Endpoint, ServiceBatch, ServiceKey, ServiceView
from bgp.speaker.interface import IPAddress
from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.kubernetes.access import find
from libcalico.kubernetes.changes import Changes
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.reflector import Reflector
from libcalico.kubernetes.service_objects import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from libcalico.process import tasks
from libcalico.process.tasks import ended

log = logging.getLogger(__name__)

RETRY = 10.0
"""Seconds: credentials that are not there may come."""


async def connect(environ: Mapping[str, str]) -> Client:
    """A client, as soon as there are credentials."""
    logged = ""
    while True:
        try:
            return Client(find(apiconfig.of_node(environ), environ))
        except MuslinError as error:
            if str(error) != logged:
                log.warning("the Kubernetes API is needed: %s", error)
                logged = str(error)
            await asyncio.sleep(RETRY)


class ServiceTable:
    """Services and their slices, joined. Pure."""

    def __init__(self) -> None:
        self._services: dict[ServiceKey, Service] = {}
        self._slices: dict[Name, EndpointSlice] = {}
        self._of: dict[ServiceKey, set[Name]] = {}

    def service(self, name: Name, value: Service | None) -> ServiceKey:
        """Store a service; returns the services that may differ."""
        key = (name.namespace, name.name)
        if value is None:
            self._services.pop(key, None)
        else:
            self._services[key] = value
        return key

    def slice(self, name: Name, value: EndpointSlice | None) -> set[ServiceKey]:
        """Store a slice; returns the services that may differ."""
        touched = set()
        old = self._slices.pop(name, None)
        if old is not None:
            key = (name.namespace, old.service)
            self._of[key].discard(name)
            if not self._of[key]:
                del self._of[key]
            touched.add(key)
        if value is not None and value.service:
            key = (name.namespace, value.service)
            self._slices[name] = value
            self._of.setdefault(key, set()).add(name)
            touched.add(key)
        return touched

    def view(self, key: ServiceKey) -> ServiceView | None:
        """A service as BGP needs it; a headless one has no address to announce."""
        value = self._services.get(key)
        if value is None:
            return None
        spec, slices = value.spec, [self._slices[name] for name in self._of.get(key, ())]
        ingress = value.status.loadBalancer.ingress or ()
        return ServiceView(
            type=spec.type or "ClusterIP",
            cluster_ips=_addresses(spec.clusterIPs or [spec.clusterIP]),
            external_ips=_addresses(spec.externalIPs or ()),
            load_balancer_ips=_addresses(each.ip for each in ingress),
            local=spec.externalTrafficPolicy == "Local",
            endpoints=frozenset(
                Endpoint(each.node, _VERSIONS[one.addressType])
                for one in slices
                if one.addressType in _VERSIONS
                for each in one.endpoints or ()
                if each.ready
            ),
            sliced=bool(slices),
        )


_VERSIONS = {"IPv4": 4, "IPv6": 6}


def _addresses(texts: Iterable[str]) -> tuple[IPAddress, ...]:
    addresses = []
    for text in texts:
        with contextlib.suppress(ValueError):  # "None" of a headless service
            addresses.append(ip_address(text))
    return tuple(addresses)


class KubernetesServices:
    """A `bgp.cluster.services.ServiceSource`.

    `problem`: why nothing is told now, empty if all is well.
    """

    def __init__(self, environ: Mapping[str, str], retry: float = RETRY) -> None:
        self._environ, self._retry = environ, retry
        self._wanted = asyncio.Event()
        self._fault = ""
        self._reflectors: list[Reflector[Service] | Reflector[EndpointSlice]] = []

    @property
    def problem(self) -> str:
        """Why there is no news now."""
        errors = [each.error for each in self._reflectors if each.error]
        return self._fault or (errors[0] if errors else "")

    def require(self) -> None:
        """Services are announced: read them from now on."""
        self._wanted.set()

    async def batches(self) -> AsyncIterator[ServiceBatch]:
        """All services, then changes, for ever; after a fault all are read again."""
        await self._wanted.wait()
        views: dict[ServiceKey, ServiceView] = {}
        while True:
            try:
                async with aclosing(self._read(views)) as batches:
                    async for batch in batches:
                        self._fault = ""
                        yield batch
            except Exception as error:
                log.exception("services are read anew, after a fault")
                self._fault = f"reading them failed: {type(error).__name__}: {error}"
            await asyncio.sleep(self._retry)

    async def _read(self, views: dict[ServiceKey, ServiceView]) -> AsyncGenerator[ServiceBatch]:
        """The differences to `views`, which is updated; none until all lists are complete."""
        client, table = await connect(self._environ), ServiceTable()
        services, slices = Changes[Service](), Changes[EndpointSlice]()
        queue: asyncio.Queue[set[ServiceKey] | asyncio.Task[None]] = asyncio.Queue()
        complete = {SERVICES.plural: False, ENDPOINT_SLICES.plural: False}

        async def take_services() -> None:
            async for batch in services.batches():
                complete[SERVICES.plural] = batch.complete
                queue.put_nowait({table.service(name, one) for name, one in batch.changes.items()})

        async def take_slices() -> None:
            async for batch in slices.batches():
                complete[ENDPOINT_SLICES.plural] = batch.complete
                touched = [table.slice(name, one) for name, one in batch.changes.items()]
                queue.put_nowait(set().union(*touched))

        self._reflectors = [
            Reflector(client, SERVICES, services),
            Reflector(client, ENDPOINT_SLICES, slices),
        ]
        works = [*(each.run() for each in self._reflectors), take_services(), take_slices()]
        running = [tasks.start(work, "services of the API") for work in works]
        for task in running:
            task.add_done_callback(queue.put_nowait)
        dirty, first = set(views), True
        try:
            while True:
                said = await queue.get()
                if isinstance(said, asyncio.Task):
                    said.result()
                    raise RuntimeError(f"{said.get_coro()} has ended")
                dirty |= said
                if first and not all(complete.values()):
                    continue
                changes = [
                    (key, view) for key in dirty if (view := table.view(key)) != views.get(key)
                ]
                for key, view in changes:
                    if view is None:
                        del views[key]
                    else:
                        views[key] = view
                dirty, first = set(), False
                yield ServiceBatch(tuple(changes), all(complete.values()))
        finally:
            for task in running:
                task.cancel()
            await ended(running)
            await client.close()
