"""The endpoints of services: where they come from, what of them policy needs.

A rule may name a Service instead of addresses. Only the Kubernetes API knows the endpoints of a
Service (EndpointSlices). So a reader (`felix.store.service_reader`, or a test) feeds a
`ServiceSink`, which the calculation is: every slice, then `services_known(True)`, then every
change. Without a reader no rule with `services` is enforced: an allow rule with one is left out, a
deny rule applies without it, and a condition says so.

As in Calico every address of a slice counts, ready or not, and whether the Service itself
exists is not asked.

Invariants:
  SVC-1  Before `services_known(True)` no rule relies on services; after it a service without
         slices has no members. What was known stays while the API is away.
  SVC-2  The members of a service depend on its slices only, not on their history.
Tested in tests/felix/calc/policy/test_services.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, Protocol

IPAddress = IPv4Address | IPv6Address


class SliceKey(NamedTuple):
    """An EndpointSlice of Kubernetes."""

    namespace: str
    name: str


class ServicePort(NamedTuple):
    """A port of a slice: `protocol` is tcp, udp or sctp. Ports without a number are left out."""

    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class ServiceSlice:
    """What counts of an EndpointSlice: whose it is (label kubernetes.io/service-name), and who."""

    service: str
    addresses: frozenset[IPAddress]
    ports: frozenset[ServicePort] = frozenset()


class ServiceSink(Protocol):
    """The receiver of slices; every method returns whether anything is to be settled."""

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        """Add or change a slice; None removes it."""

    def services_known(self, known: bool) -> bool:
        """Say whether all slices have been received; False: there is no source."""
