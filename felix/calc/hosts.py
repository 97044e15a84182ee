"""Host endpoints: which interface of this node each one is.

The problem: a host endpoint names an interface, or the addresses to find it by, and several may
mean the same one. The dataplane knows interfaces and addresses, the calculation the host
endpoints; `interfaces_of` brings the two together.

Invariants:
  HEP-1  Of several host endpoints of one interface those that name it come before those that
         name an address of it, and of equals the smallest name has it; the others are named,
         not served (docs/reference/dataplane.md#host-endpoints).
  HEP-2  `ANY_INTERFACE` stands for the interfaces that have no host endpoint of their own.
Tested in tests/felix/calc/test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from felix.calc.policy_model import ANY_INTERFACE, HostEndpoint, IPAddress
from libcalico.model.keys import ResourceKey


@dataclass(slots=True)
class HostInterfaces:
    """Host endpoints by interface (`ANY_INTERFACE` among them), and why others have none."""

    serving: dict[str, HostEndpoint] = field(default_factory=dict)
    idle: dict[ResourceKey, str] = field(default_factory=dict)


def interfaces_of(
    endpoints: Iterable[HostEndpoint], interfaces: Mapping[str, Set[IPAddress]]
) -> HostInterfaces:
    """Which host endpoint each of the host's interfaces has.

    `interfaces`: those that belong to no workload, each with its addresses. An interface that
    several addresses of one host endpoint lie on is one; a host endpoint whose addresses lie on
    several interfaces is all of them.
    """
    result = HostInterfaces()
    ordered = sorted(endpoints, key=lambda endpoint: endpoint.key)
    for endpoint in ordered:
        if endpoint.interface == ANY_INTERFACE:
            _claim(result, ANY_INTERFACE, endpoint)
        elif endpoint.interface:
            if endpoint.interface in interfaces:
                _claim(result, endpoint.interface, endpoint)
            else:
                result.idle[endpoint.key] = f"there is no host interface {endpoint.interface}"
    for endpoint in ordered:
        if endpoint.interface:
            continue
        names = sorted(name for name, own in interfaces.items() if endpoint.addresses & own)
        for name in names:
            _claim(result, name, endpoint)
        if not names:
            addresses = ", ".join(sorted(map(str, endpoint.addresses))) or "none"
            result.idle[endpoint.key] = f"no host interface has an expected address: {addresses}"
    for endpoint in result.serving.values():
        result.idle.pop(endpoint.key, None)
    return result


def _claim(result: HostInterfaces, interface: str, endpoint: HostEndpoint) -> None:
    holder = result.serving.setdefault(interface, endpoint)
    if holder is not endpoint:
        result.idle[endpoint.key] = f"interface {interface} belongs to {holder.key}"
