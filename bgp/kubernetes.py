"""Services and Secrets of the Kubernetes API, for `bgp.services` and `bgp.passwords`.

The API is asked only while the configuration needs it: services while ranges of them are
announced, Secrets one by one while a peering names them. Where there is no API, or no right to
read, what needs it is refused and named, and the rest of BGP works on.
Tested in tests/bgp/test_kubernetes.py and, with a real API server, in
tests/apiserver/test_bgp_sources.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

from bgp.passwords import Passwords, SecretRef
from bgp.services import Endpoint, ServiceBatch, ServiceKey, ServiceView
from bgp.speaker.interface import IPAddress
from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.kubernetes.access import find
from libcalico.kubernetes.changes import Changes
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import (
    ENDPOINT_SLICES,
    SECRETS,
    SERVICES,
    EndpointSlice,
    Secret,
    Service,
)
from libcalico.kubernetes.reflector import Reflector

log = logging.getLogger(__name__)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "kube-system"
RETRY = 10.0
"""Seconds: credentials that are not there may come."""


def namespace(environ: Mapping[str, str], file: Path = NAMESPACE_FILE) -> str:
    """Where Secrets are read: the namespace of this pod, as in Calico."""
    if name := environ.get("NAMESPACE", ""):
        return name
    with contextlib.suppress(OSError):
        return file.read_text().strip() or DEFAULT_NAMESPACE
    return DEFAULT_NAMESPACE


async def connect(environ: Mapping[str, str]) -> Client:
    """A client, as soon as there are credentials."""
    told = ""
    while True:
        try:
            return Client(find(apiconfig.of_node(environ), environ))
        except MuslinError as error:
            if str(error) != told:
                log.warning("the Kubernetes API is needed: %s", error)
                told = str(error)
            await asyncio.sleep(RETRY)


class ServiceTable:
    """Services and their slices, joined. Pure."""

    def __init__(self) -> None:
        self._services: dict[ServiceKey, Service] = {}
        self._slices: dict[Name, EndpointSlice] = {}
        self._of: dict[ServiceKey, set[Name]] = {}

    def service(self, name: Name, value: Service | None) -> ServiceKey:
        """A service is so now; returns which may differ."""
        key = (name.namespace, name.name)
        if value is None:
            self._services.pop(key, None)
        else:
            self._services[key] = value
        return key

    def slice(self, name: Name, value: EndpointSlice | None) -> set[ServiceKey]:
        """A slice is so now; returns the services that may differ."""
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
                Endpoint(each.nodeName or "", _VERSIONS[one.addressType])
                for one in slices
                if one.addressType in _VERSIONS
                for each in one.endpoints or ()
                if each.ready
            ),
            sliced=bool(slices),
        )


_VERSIONS = {"IPv4": 4, "IPv6": 6}


def _addresses(texts: Iterable[str]) -> tuple[IPAddress, ...]:
    found = []
    for text in texts:
        with contextlib.suppress(ValueError):  # "None" of a headless service
            found.append(ip_address(text))
    return tuple(found)


class KubernetesServices:
    """A `bgp.services.ServiceSource`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Services are announced: read them from now on."""
        self._wanted.set()

    async def batches(self) -> AsyncIterator[ServiceBatch]:
        """All services, then changes, for ever."""
        await self._wanted.wait()
        client, table = await connect(self._environ), ServiceTable()
        told: dict[ServiceKey, ServiceView] = {}
        services, slices = Changes[Service](), Changes[EndpointSlice]()
        queue: asyncio.Queue[set[ServiceKey]] = asyncio.Queue()
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

        tasks = [
            asyncio.create_task(work)
            for work in (
                Reflector(client, SERVICES, services).run(),
                Reflector(client, ENDPOINT_SLICES, slices).run(),
                take_services(),
                take_slices(),
            )
        ]
        try:
            while True:
                changes = []
                for key in await queue.get():
                    view = table.view(key)
                    if view != told.get(key):
                        changes.append((key, view))
                        if view is None:
                            del told[key]
                        else:
                            told[key] = view
                yield ServiceBatch(tuple(changes), all(complete.values()))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()


class KubernetesPasswords:
    """A `bgp.passwords.PasswordSource`: one watch for each Secret that is named."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ, self._namespace = environ, namespace(environ)
        self._refs: frozenset[SecretRef] = frozenset()
        self._data: dict[str, dict[str, bytes]] = {}
        self._listed: set[str] = set()
        self._reflectors: dict[str, Reflector[Secret]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def want(self, refs: frozenset[SecretRef]) -> None:
        """These references are needed now."""
        if refs != self._refs:
            self._refs = refs
            self._wake.set()

    async def changes(self) -> AsyncIterator[Passwords]:
        """What is known, at first and after each change; for ever."""
        client: Client | None = None
        last: Passwords | None = None
        try:
            while True:
                self._wake.clear()
                names = {ref.name for ref in self._refs}
                if names and client is None:
                    client = await connect(self._environ)
                for name in self._tasks.keys() - names:
                    self._tasks.pop(name).cancel()
                    self._reflectors.pop(name)
                    self._data.pop(name, None)
                    self._listed.discard(name)
                for name in names - self._tasks.keys():
                    if client is not None:
                        self._follow(client, name)
                known = self._known()
                if known != last:
                    yield known
                    last = known
                await self._wake.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            if client is not None:
                await client.close()

    def _follow(self, client: Client, name: str) -> None:
        query = Query(self._namespace, fields=f"metadata.name={name}")
        reflector = Reflector(client, SECRETS, _One(self, name), query, told=self._wake.set)
        self._reflectors[name] = reflector
        self._tasks[name] = asyncio.create_task(reflector.run())

    def tell(self, name: str, data: Mapping[str, bytes] | None) -> None:
        """A Secret is so now; None: there is none."""
        self._listed.add(name)
        if data is None:
            self._data.pop(name, None)
        else:
            self._data[name] = dict(data)
        self._wake.set()

    def listed(self, name: str) -> None:
        """It is known whether there is such a Secret."""
        self._listed.add(name)
        self._wake.set()

    def _known(self) -> Passwords:
        known = Passwords()
        for ref in self._refs:
            value = self._data.get(ref.name, {}).get(ref.key)
            reflector = self._reflectors.get(ref.name)
            if value is not None:
                try:
                    known.values[ref] = value.decode()
                except UnicodeDecodeError:
                    known.problems[ref] = "it is not text"
            elif ref.name in self._data:
                known.problems[ref] = "the Secret has no such key"
            elif ref.name in self._listed:
                known.problems[ref] = f"there is no such Secret in namespace {self._namespace}"
            elif reflector is not None and reflector.error:
                known.problems[ref] = reflector.error
            else:
                known.problems[ref] = "not read yet"
        return known


class _One:
    """The sink of one Secret."""

    def __init__(self, source: KubernetesPasswords, name: str) -> None:
        self._source, self._name = source, name

    def put(self, name: Name, value: Secret) -> None:
        self._source.tell(self._name, value.data or {})

    def gone(self, name: Name) -> None:
        self._source.tell(self._name, None)

    def listed(self) -> None:
        self._source.listed(self._name)
