"""Which routes this node originates. Pure: affinities, addresses and pools in, routes out.

A node announces its confirmed blocks, and a host route for each of its addresses that lies
in no block of its own (borrowed, or the block is not confirmed yet). Calico's order
(dataplane reference 5.3, 5.4): nothing of a pool with `disableBGPExport`; then own blocks;
then host routes inside an enabled pool. A block of a single address is no block route: its
address goes as a host route.

  BGP-4  Nothing outside the node's blocks and addresses is ever originated.
Tested in tests/bgp/test_export.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_network

from bgp.speaker.interface import IPAddress, IPNetwork, Route
from bgp.view import PoolView


def routes(
    affinities: Mapping[IPNetwork, str],
    mine: Mapping[IPNetwork, Collection[IPAddress]],
    pools: Iterable[PoolView],
) -> frozenset[Route]:
    """The routes to offer to every peer, next hop self.

    `affinities`: state of this node's block affinities; `mine`: its addresses by block.
    """
    pools = tuple(pools)
    blocks = {
        cidr
        for cidr, state in affinities.items()
        if state == "confirmed" and cidr.prefixlen < cidr.max_prefixlen
    }
    found = {Route(cidr) for cidr in blocks if not _hidden(cidr, pools)}
    for block, addresses in mine.items():
        if block in blocks:
            continue
        for address in addresses:
            host = ip_network(address)
            if _inside_enabled(host, pools) and not _hidden(host, pools):
                found.add(Route(host))
    return frozenset(found)


def _contains(pool: PoolView, net: IPNetwork) -> bool:
    return pool.cidr.version == net.version and net.subnet_of(pool.cidr)  # type: ignore[arg-type]


def _hidden(net: IPNetwork, pools: Iterable[PoolView]) -> bool:
    return any(not pool.exported and _contains(pool, net) for pool in pools)


def _inside_enabled(net: IPNetwork, pools: Iterable[PoolView]) -> bool:
    return any(pool.enabled and _contains(pool, net) for pool in pools)
