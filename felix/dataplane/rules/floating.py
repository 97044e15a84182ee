"""Floating addresses: which of those that endpoints ask for lead to them.

An address leads to one workload. Of several that ask for it the smallest name has it, as with
interfaces (EPT-3), and one that is a local workload's own leads to that workload alone (FLT-1): the
author of a pod's annotations must not draw another pod's traffic. What is refused is named.
Pure. Tested in tests/felix/kernel/test_floating.py with packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from felix.calc.endpoints import Endpoint, IPNetwork, addresses
from felix.rules.nat import Floating
from libcalico.model.keys import ResourceKey


@dataclass(frozen=True, slots=True)
class FloatingAddresses:
    """`pairs` as rules take them, `networks` by interface, `refused` with the reason."""

    pairs: Floating = ()
    networks: Mapping[str, tuple[IPNetwork, ...]] = field(default_factory=dict)
    refused: dict[ResourceKey, str] = field(default_factory=dict)

    def of(self, family: int) -> Floating:
        """The pairs of one family."""
        return tuple(pair for pair in self.pairs if pair[0].version == family)


NONE_FLOATING = FloatingAddresses()


def floating_addresses(endpoints: Mapping[str, Endpoint]) -> FloatingAddresses:
    """What leads where, of the active endpoints by interface."""
    asking = [endpoint for endpoint in endpoints.values() if endpoint.floating]
    if not asking:
        return NONE_FLOATING
    taken = set(addresses(endpoints, endpoints))
    pairs, refused = [], {}
    networks: dict[str, tuple[IPNetwork, ...]] = {}
    for endpoint in sorted(asking, key=lambda endpoint: endpoint.key):
        for outer, own in endpoint.floating:
            if outer in taken:
                reason = f"spec.ipNATs: {outer} leads to another workload already"
                refused[endpoint.key] = reason
                continue
            taken.add(outer)
            pairs.append((outer, own))
            networks[endpoint.interface] = (
                *networks.get(endpoint.interface, ()),
                ip_network(outer),
            )
    return FloatingAddresses(tuple(pairs), networks, refused)
