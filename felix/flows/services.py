"""Which service has an address and port: Services of the Kubernetes API, while flows are made.

A connection's first packet was aimed at a service's address (of the cluster, external, of a load
balancer) or at a node port of this or another node; its port leads to the port of the service. Only
the API knows that. It is read only while flow logs are on; without an API flows name no service.
Services stay known while the API is away.

Invariant:
  FSV-1  An answer depends on the services that are known, not on the order in which they came.
Tested in tests/felix/flows/test_services.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from felix.calc.labels import PROTOCOLS
from flows.record import Service
from libcalico import apiconfig
from libcalico.errors import MuslinError

if TYPE_CHECKING:
    from libcalico.kubernetes.names import Name
    from libcalico.kubernetes.service_objects import Service as Stored

NO_ACCESS_INTERVAL = 10.0
"""Seconds: credentials that are not there may come."""
NONE = Service()
_NO_ADDRESS = ("", "None")
Place = tuple[bytes, int, int]
"""Address (of a node port: empty), port, protocol."""

log = logging.getLogger(__name__)


class ServiceTable:
    """The services by what they are reached at."""

    def __init__(self) -> None:
        self._places: dict[Name, frozenset[tuple[Place, Service]]] = {}
        self._found: dict[Place, dict[Service, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def service(self, address: bytes, port: int, protocol: int) -> Service:
        """The service at an address and port; else that of the node port; else an empty one."""
        services = self._found.get((address, port, protocol)) or self._found.get(
            (b"", port, protocol)
        )
        if not services:
            return NONE
        return min(services, key=lambda one: (one.namespace, one.name, one.port_name, one.port))

    def put(self, name: Name, value: Stored) -> None:
        """Add or change a service."""
        self.gone(name)
        self._places[name] = places = frozenset(_places(name, value))
        for place, service in places:
            services = self._found.setdefault(place, {})
            services[service] = services.get(service, 0) + 1

    def gone(self, name: Name) -> None:
        """Remove a service."""
        for place, service in self._places.pop(name, ()):
            services = self._found[place]
            services[service] -= 1
            if not services[service]:
                del services[service]
            if not services:
                del self._found[place]

    def listed(self) -> None:
        """All services have been listed; nothing here waits for that."""


def _places(name: Name, value: Stored) -> Iterator[tuple[Place, Service]]:
    spec = value.spec
    texts = [spec.clusterIP, *(spec.clusterIPs or ()), *(spec.externalIPs or ())]
    texts += [spec.loadBalancerIP]
    texts += [one.ip for one in value.status.loadBalancer.ingress or ()]
    addresses = set()
    for text in texts:
        if text not in _NO_ADDRESS:
            try:
                addresses.add(ip_address(text).packed)
            except ValueError:
                continue
    for port in spec.ports or ():
        protocol = PROTOCOLS.get(port.protocol.lower(), 0)
        namespace, own = name
        service = Service(own, namespace, port.name, port.port)
        for address in addresses:
            yield (address, port.port, protocol), service
        if port.nodePort:
            yield (b"", port.nodePort, protocol), service


class ServiceFollower:
    """Follows the services of the cluster into a table while `run` runs."""

    def __init__(self, table: ServiceTable, environ: Mapping[str, str]) -> None:
        self._table, self._environ = table, environ
        self._said = ""

    async def run(self) -> None:
        """Follow until cancelled. Where there is no API, look for it now and then."""
        # Most nodes make no flows; these start without loading a client.
        from libcalico.kubernetes.access import find
        from libcalico.kubernetes.client import Client
        from libcalico.kubernetes.reflector import Reflector
        from libcalico.kubernetes.service_objects import SERVICES

        while True:
            try:
                source = find(apiconfig.of_node(self._environ), self._environ)
                break
            except MuslinError as error:
                if str(error) != self._said:
                    log.info("flows name no services: %s", error)
                self._said = str(error)
            await asyncio.sleep(NO_ACCESS_INTERVAL)
        client = Client(source)
        try:
            await Reflector(client, SERVICES, self._table).run()
        finally:
            await client.close()
