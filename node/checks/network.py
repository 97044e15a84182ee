"""Checks of this node's addresses, its links, and the pools. Pure.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Choice, Facts, Pool, Probe

BRIDGES = ("docker", "br-", "virbr", "cni", "podman", "lxc")
FOREIGN_LINKS = ("cni0", "flannel", "cilium_", "lxc_health", "weave", "kube-bridge", "antrea-gw")
OVERHEAD = {"ipip": 20, "vxlan": 50, "vxlan6": 70}
OUR_PROTOCOLS = frozenset({80, 109})
"""Routes of felix (ours and Calico's): pods and blocks lie inside pools, they are no overlap."""
LEAST_MTU = 1280


def chosen(facts: Facts) -> list[tuple[int, Choice]]:
    """The address choices that were made, by family."""
    return [(version, one) for version, one in sorted(facts.network.choices.items()) if one.address]


@check(
    "node-address",
    required=True,
    cause="Other nodes send this node's pods their packets by this address.",
    fix="Set IP (and IP6) to an address or autodetect, and IP_AUTODETECTION_METHOD to"
    " can-reach=HOST, interface=REGEX or cidr=CIDR.",
)
def node_address(facts: Facts) -> Finding:
    """Which address this node takes, and why."""
    if facts.network.backend == "none":
        return unknown("CALICO_NETWORKING_BACKEND=none: no address is needed")
    errors = [one.error for one in facts.network.choices.values() if one.error]
    if errors:
        return bad("; ".join(errors))
    addresses = chosen(facts)
    if not addresses:
        return bad("neither IPv4 nor IPv6")
    listed = "; ".join(f"{one.address}: {one.why}" for _, one in addresses)
    bridges = [one.interface for _, one in addresses if one.interface.startswith(BRIDGES)]
    if bridges:
        return doubtful(f"{listed} ({', '.join(bridges)} looks like a local bridge)")
    return good(listed)


@check(
    "node-address-local",
    required=True,
    cause="An address that no interface has cannot be reached, and BGP cannot start from it.",
    fix="Correct IP/IP6, or give the address to an interface.",
)
def node_address_local(facts: Facts) -> Finding:
    """The chosen addresses are on an interface that is up."""
    addresses = chosen(facts)
    if not addresses:
        return unknown("no address was chosen")
    for _, one in addresses:
        if not one.interface:
            return bad(f"{one.address} is on no interface")
        if any(link.name == one.interface and not link.up for link in facts.network.links):
            return bad(f"{one.address} is on {one.interface}, which is down")
    return good(", ".join(f"{one.address} on {one.interface}" for _, one in addresses))


@check(
    "node-address-stored",
    required=False,
    cause="Other nodes use the stored address until this node is started again.",
    fix="Restart calico-node, or set IP to the address that is meant.",
)
def node_address_stored(facts: Facts) -> Finding:
    """The Node resource has the address that would be chosen now."""
    own = next((one for one in facts.store.nodes if one.name == facts.host.node_name), None)
    if own is None:
        return unknown("this node is not in the datastore yet, or it was not asked")
    for version, one in chosen(facts):
        stored = own.ipv4 if version == 4 else own.ipv6
        if stored and ip_interface(stored).ip != ip_interface(one.address).ip:
            return bad(f"stored: {stored}, chosen now: {one.address}")
    return good("the same")


@check(
    "node-address-route",
    required=False,
    cause="Packets to other nodes leave from another address than the one that they know this node"
    " by: the wrong interface was chosen, or the routes lead elsewhere.",
    fix="Set IP_AUTODETECTION_METHOD=can-reach=<another node>, or correct the routes.",
)
def node_address_route(facts: Facts) -> Finding:
    """The kernel takes the chosen address towards other nodes."""
    asked = [one for _, one in chosen(facts) if one.source_to_peers]
    if not asked:
        return unknown("no other node is known")
    for one in asked:
        if ip_address(one.source_to_peers) != ip_interface(one.address).ip:
            return bad(
                f"towards {one.peer} the kernel takes {one.source_to_peers}, not {one.address}"
            )
    return good(f"the source towards {asked[0].peer}")


@check(
    "node-mask",
    required=False,
    cause="With a /32 (or /128) no other node is in this node's subnet: CrossSubnet pools then"
    " encapsulate every packet.",
    fix="Give the address with its mask (IP=10.0.0.5/24), or on the interface.",
)
def node_mask(facts: Facts) -> Finding:
    """The chosen address has a subnet."""
    addresses = chosen(facts)
    if not addresses:
        return unknown("no address was chosen")
    alone = [
        one.address
        for _, one in addresses
        if ip_interface(one.address).network.prefixlen == ip_interface(one.address).max_prefixlen
    ]
    if not alone:
        return good(", ".join(str(ip_interface(one.address).network) for _, one in addresses))
    pools = [one.name for one in facts.store.pools if one.cross_subnet]
    listed = f"{', '.join(alone)}: no subnet"
    if pools:
        return bad(f"{listed}; CrossSubnet pools: {', '.join(pools)}")
    # Clouds hand out /32 on purpose; without CrossSubnet nothing reads the mask.
    return good(f"{listed}, and no pool is CrossSubnet")


@check(
    "router-id",
    required=True,
    cause="BGP identifies a router by an IPv4-like number, taken from the node's IPv4 address.",
    fix="Set CALICO_ROUTER_ID=hash on nodes without IPv4.",
)
def router_id(facts: Facts) -> Finding:
    """There is a BGP router id."""
    if facts.network.backend == "none":
        return unknown("BGP is off")
    if facts.network.router_id:
        return good(f"CALICO_ROUTER_ID={facts.network.router_id}")
    families = [version for version, _ in chosen(facts)]
    if not families:
        return unknown("no address was chosen")
    return good("the IPv4 address") if 4 in families else bad("IPv6 only, CALICO_ROUTER_ID not set")


@check(
    "other-links",
    required=False,
    cause="Interfaces of another network plugin still carry routes and masquerading for pods.",
    fix="Remove the other plugin, then `ip link delete` its interfaces or reboot.",
)
def other_links(facts: Facts) -> Finding:
    """No interfaces of another network plugin are left."""
    left = sorted(one.name for one in facts.network.links if one.name.startswith(FOREIGN_LINKS))
    return bad(", ".join(left)) if left else good("none")


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


def _some(probes: list[Probe]) -> str:
    listed = ", ".join(f"{one.node} {one.address}" for one in probes[:5])
    return f"{listed} and {len(probes) - 5} more" if len(probes) > 5 else listed


@check(
    "mtu-probe",
    required=True,
    cause="Small packets pass and full-size ones vanish: connections open and then hang.",
    fix="Make every interface and switch between the nodes carry the MTU, let ICMP `fragmentation"
    " needed` through, or lower the MTU of nodes and pods.",
)
def mtu_probe(facts: Facts) -> Finding:
    """A full-size packet that may not be fragmented reaches the other nodes."""
    heard = [one for one in facts.probes if one.small == "answer"]
    if not heard:
        return unknown("no other node answers echo requests" if facts.probes else "no other node")
    lost = [one for one in heard if one.full != "answer"]
    if lost:
        why = lost[0].full
        return bad(f"{lost[0].size} bytes with DF to {_some(lost)}: {why}")
    return good(f"{heard[0].size} bytes with DF, {len(heard)} node(s)")


@check(
    "nodes-reachable",
    required=False,
    cause="Without a way between the nodes there is none between their pods.",
    fix="Look at the routes, and let ICMP echo through if only that is filtered.",
)
def nodes_reachable(facts: Facts) -> Finding:
    """Other nodes answer echo requests or on port 179."""
    if not facts.probes:
        return unknown("no other node")
    mute = [
        one for one in facts.probes if one.small != "answer" and one.bgp not in ("open", "refused")
    ]
    if mute:
        return bad(f"{_some(mute)}: {mute[0].small or mute[0].bgp}")
    return good(f"{len(facts.probes)} node(s) answer")


@check(
    "bgp-peers",
    required=False,
    cause="Without a session to a node no route leads to its pods.",
    fix="refused: start calico-node there; filtered: let TCP port 179 through between the nodes;"
    " no route: correct the routes.",
)
def bgp_peers(facts: Facts) -> Finding:
    """Port 179 of the other nodes is open."""
    if facts.network.backend == "none":
        return unknown("BGP is off")
    asked = [one for one in facts.probes if one.bgp]
    if not asked:
        return unknown("no other node")
    shut = [one for one in asked if one.bgp != "open"]
    if shut:
        reasons = sorted({one.bgp for one in shut})
        return bad(
            "; ".join(f"{why}: {_some([o for o in shut if o.bgp == why])}" for why in reasons)
        )
    return good(f"open on {len(asked)} node(s)")
