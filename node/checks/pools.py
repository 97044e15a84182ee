"""Checks of the pools: free ranges, and an MTU that fits. Pure.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from node.checks.check import Finding, bad, check, good, unknown
from node.checks.datastore_facts import Pool
from node.checks.facts import Facts
from node.checks.network import chosen

OVERHEAD = {"ipip": 20, "vxlan": 50, "vxlan6": 70}

OUR_PROTOCOLS = frozenset({80, 109})
"""Routes of felix (ours and Calico's): pods and blocks lie inside pools, they are no overlap."""

LEAST_MTU = 1280


@check(
    "pool-host-overlap",
    required=True,
    cause="Pods would get addresses that this host reaches elsewhere; one of the two is cut off.",
    fix="Move the pool to a free range (`calicoctl ipam migrate --from A --to B`), or change the"
    " route.",
)
def pool_host_overlap(facts: Facts) -> Finding:
    """No pool overlaps an address or route of this host."""
    if not facts.store.allocating:
        return unknown("no pools are known")
    for pool in facts.store.allocating:
        for interface in facts.network.interfaces:
            if interface.name.startswith(("cali", "tunl", "vxlan", "wireguard")):
                continue
            for address in interface.addresses:
                if address.version == pool.cidr.version and address.ip in pool.cidr:
                    return bad(f"IPPool({pool.name}) {pool.cidr}: {address} on {interface.name}")
        for route in facts.network.routes:
            if (
                route.dst.version == pool.cidr.version
                and route.dst.prefixlen
                and route.protocol not in OUR_PROTOCOLS
                and not route.interface.startswith(("cali", "tunl", "vxlan.calico"))
                and route.dst.overlaps(pool.cidr)
            ):
                where = f"the route to {route.dst} by {route.interface}"
                return bad(f"IPPool({pool.name}) {pool.cidr}: {where}")
    return good(f"{len(facts.store.allocating)} pool(s), no overlap")


@check(
    "pool-service-overlap",
    required=True,
    cause="A service address that is also a pod's address is translated before it reaches the pod.",
    fix="Give pools and services different ranges.",
)
def pool_service_overlap(facts: Facts) -> Finding:
    """No pool overlaps a service range."""
    if not facts.store.allocating or not facts.store.service_ranges:
        return unknown("no pools or no service ranges are known")
    for pool in facts.store.allocating:
        for services in facts.store.service_ranges:
            if pool.cidr.version == services.version and pool.cidr.overlaps(services):
                return bad(f"IPPool({pool.name}) {pool.cidr} and services {services}")
    return good("apart")


@check(
    "mtu",
    required=True,
    cause="A pod's full-size packet plus encapsulation must fit the interface between nodes;"
    " what does not fit is lost where `fragmentation needed` is filtered.",
    fix="Let felix choose (mtu 0 in the CNI configuration, no FELIX_*MTU), or lower the pods' MTU.",
)
def mtu(facts: Facts) -> Finding:
    """Pods' MTU and the pools' encapsulation fit the interface with the node's address."""
    names = {one.interface for _, one in chosen(facts) if one.interface}
    sizes = [one.mtu for one in facts.network.links if one.name in names]
    if not sizes:
        return unknown("no address was chosen")
    link = min(sizes)
    if link < LEAST_MTU:
        return bad(f"the interface's MTU is {link}, below {LEAST_MTU}")
    if facts.network.pod_mtu is None:
        return good(f"the interface's MTU is {link}; pods get it less the encapsulation")
    extra = max((OVERHEAD.get(_encapsulation(one), 0) for one in facts.store.pools), default=0)
    comparison = f"pods {facts.network.pod_mtu} + encapsulation {extra}, interface {link}"
    return (good if facts.network.pod_mtu + extra <= link else bad)(comparison)


def _encapsulation(pool: Pool) -> str:
    return f"{pool.encapsulation}6" if pool.cidr.version == 6 else pool.encapsulation
