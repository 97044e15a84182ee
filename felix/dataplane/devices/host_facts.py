"""What the host's own links and addresses are, without those of workloads. Pure.

Tested in tests/felix/dataplane/test_dataplane_parts.py and test_event_order.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from linux.addresses import Address
from linux.links import Link

IPAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class HostFacts:
    """`prefixes`: how the workloads' interfaces of that time begin. `own_addresses`: without
    loopback and link-local ones. `interfaces`: links by name, each with all its addresses.
    `networks`: those of `own_addresses`, each with its link's name.
    """

    prefixes: tuple[str, ...]
    own_addresses: frozenset[IPAddress]
    interfaces: Mapping[str, frozenset[IPAddress]]
    networks: Mapping[str, str]


def host_facts(
    links: Mapping[int, Link],
    addresses: Mapping[tuple[int, str], Address],
    prefixes: tuple[str, ...],
    is_workload: Callable[[int], bool],
) -> HostFacts:
    """Sort links and addresses as a view has them; of two links in one network the lower counts.

    `is_workload`: whether the link of this index is one, of which maybe only an address is known.
    """
    interfaces: dict[str, set[IPAddress]] = {
        link.name: set() for index, link in links.items() if not is_workload(index)
    }
    own: set[IPAddress] = set()
    networks: dict[str, str] = {}
    for (index, _), address in sorted(addresses.items()):
        link, ip = links.get(index), address.interface.ip
        if link is not None and link.name in interfaces:
            interfaces[link.name].add(ip)
        if is_workload(index) or ip.is_loopback or ip.is_link_local:
            continue
        own.add(ip)
        if link is not None:
            networks.setdefault(str(address.interface.network), link.name)
    by_name = {name: frozenset(ips) for name, ips in interfaces.items()}
    return HostFacts(prefixes, frozenset(own), by_name, networks)
