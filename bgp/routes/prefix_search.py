"""Which prefixes lie inside a network. Pure. Tested in tests/bgp/test_validity.py."""

from __future__ import annotations

from collections.abc import Collection

from bgp.speaker.interface import IPNetwork

_PER_ADDRESS = 8
"""To look a network's pieces up costs as much as looking at so many prefixes for each address."""


def lies_in(prefix: IPNetwork, network: IPNetwork) -> bool:
    """Whether a prefix is `network` or lies inside it.

    As `subnet_of`, which leaves a dict and an address more at every prefix that it looks at.
    """
    return (
        prefix.version == network.version
        and prefix.prefixlen >= network.prefixlen
        and prefix.network_address in network
    )


def inside(prefixes: Collection[IPNetwork], network: IPNetwork) -> list[IPNetwork]:
    """The prefixes that are `network` or lie inside it.

    Its pieces are looked up one by one where the prefixes are many.
    """
    if network.num_addresses * _PER_ADDRESS > len(prefixes):
        return [prefix for prefix in prefixes if lies_in(prefix, network)]
    lengths = range(network.prefixlen, network.max_prefixlen + 1)
    return [
        subnet
        for length in lengths
        for subnet in network.subnets(new_prefix=length)
        if subnet in prefixes
    ]
