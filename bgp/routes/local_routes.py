"""Which routes this node has to tell of itself. Pure: affinities, addresses, services in.

A node originates its confirmed blocks, a host route for each of its addresses that lies in
no block of its own (borrowed, or the block is not confirmed yet; its tunnel addresses are
such addresses too), and addresses of services. A block of a single address is no block
route: its address goes as a host route. `bgp.routes.export_policy` decides which peers get them.

  BGP-4  Nothing outside the node's blocks and addresses, the configured service ranges and
         its connected networks is ever originated.
Tested in tests/bgp/test_local_routes.py.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_network

from bgp.cluster.ownership import CONFIRMED
from bgp.speaker.interface import IPAddress, IPNetwork


class Kind(enum.Enum):
    """The kind of a local route."""

    BLOCK = "block"
    HOST = "host"
    SERVICE = "service"
    CONNECTED = "connected"


def originated(
    affinities: Mapping[IPNetwork, str],
    mine: Mapping[IPNetwork, Collection[IPAddress]],
    services: Iterable[IPNetwork] = (),
    connected: Iterable[IPNetwork] = (),
) -> dict[IPNetwork, Kind]:
    """This node's own routes.

    `affinities`: state of its block affinities; `mine`: its addresses by block; `services`:
    what `bgp.cluster.services` chose; `connected`: networks of its interfaces, which go out only if
    a BGPFilter or a pool lets them. One inside a block of this node, such as the address of its
    tunnel, is told by the block: as a longer prefix it would draw packets past the tunnel.
    """
    blocks = {
        cidr
        for cidr, state in affinities.items()
        if state == CONFIRMED and cidr.prefixlen < cidr.max_prefixlen
    }
    lengths = {(cidr.version, cidr.prefixlen) for cidr in blocks}
    routes = {net: Kind.CONNECTED for net in connected if not _inside(net, blocks, lengths)}
    routes.update(dict.fromkeys(services, Kind.SERVICE))
    routes.update(dict.fromkeys(blocks, Kind.BLOCK))
    for block, addresses in mine.items():
        if block not in blocks:
            routes.update((ip_network(address), Kind.HOST) for address in addresses)
    return routes


def _inside(
    network: IPNetwork, blocks: Collection[IPNetwork], lengths: Iterable[tuple[int, int]]
) -> bool:
    """Whether one of the blocks, which have these lengths, is or holds the network."""
    return any(
        network.supernet(new_prefix=length) in blocks
        for version, length in lengths
        if version == network.version and length <= network.prefixlen
    )
