"""The endpoints of services: where they come from, what of them policy needs.

A rule may name a Service instead of addresses. Who stands behind a Service is known to the
Kubernetes API alone (EndpointSlices), so it reaches the calculation through a seam: whoever
reads (`felix.store.service_reader`, or a test) tells a `ServiceSink`, which the calculation is:
every slice, then `services_known(True)`, then every change. Without a reader no rule with
`services` is enforced: an allow rule with one is left out, a deny rule applies without it, and a
condition says so.

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
    """A port of a slice: `protocol` is tcp, udp or sctp. A port without number is not told."""

    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class ServiceSlice:
    """What counts of an EndpointSlice: whose it is (label kubernetes.io/service-name), and who."""

    service: str
    addresses: frozenset[IPAddress]
    ports: frozenset[ServicePort] = frozenset()


class ServiceSink(Protocol):
    """Who takes what a source reads; every method returns whether anything is to be settled."""

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        """A slice is so now; None: it is gone."""

    def services_known(self, known: bool) -> bool:
        """All slices have been told (True); or there is no source any more, and never was."""
