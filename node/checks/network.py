"""Checks of this node's addresses and its links. Pure.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Choice, Facts

BRIDGES = ("docker", "br-", "virbr", "cni", "podman", "lxc")
FOREIGN_LINKS = ("cni0", "flannel", "cilium_", "lxc_health", "weave", "kube-bridge", "antrea-gw")


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
    own = facts.own_node
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
