"""Checks of this node among the others of its cluster. Tested in tests/node/test_checks.py."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network

from node.checks.check import Finding, bad, check, good, unknown
from node.checks.facts import Facts
from node.checks.network import chosen

NOT_ASKED = "the datastore was not asked"


@check(
    "datastore-locked",
    required=False,
    cause="While the datastore is locked no node accepts changes and no pod can start.",
    fix="`calicoctl datastore migrate unlock` when the migration is over.",
)
def datastore_locked(facts: Facts) -> Finding:
    """The datastore is not locked for a migration."""
    if facts.store.error != "":
        return unknown(NOT_ASKED)
    return (
        bad("locked (ClusterInformation.spec.datastoreReady is false)")
        if (facts.store.locked)
        else good("not locked")
    )


@check(
    "duplicate-node-name",
    required=True,
    cause="Two machines of one name take each other's addresses and routes.",
    fix="Set another NODENAME here, or delete the Node if the other machine is gone or was this"
    " one.",
)
def duplicate_node_name(facts: Facts) -> Finding:
    """No other machine carries this node's name."""
    if facts.store.error != "":
        return unknown(NOT_ASKED)
    own = facts.own_node
    if own is None:
        return good(f"{facts.host.node_name} is free")
    if facts.host.nodename_file == facts.host.node_name:
        return good(f"{facts.host.node_name} is this machine's since it was registered")
    local = {address.ip for one in facts.network.interfaces for address in one.addresses}
    stored = [text for text in (own.ipv4, own.ipv6) if text]
    if stored and not any(ip_interface(text).ip in local for text in stored):
        return bad(f"{own.name} is registered with {', '.join(stored)}, which is not this machine")
    return good(f"{own.name} is registered with this machine's address")


@check(
    "duplicate-node-address",
    required=True,
    cause="Two nodes of one address get each other's packets.",
    fix="Change IP here, or delete the other Node if that machine is gone.",
)
def duplicate_node_address(facts: Facts) -> Finding:
    """No other Node has this node's address."""
    if facts.store.error != "":
        return unknown(NOT_ASKED)
    mine = {ip_interface(one.address).ip for _, one in chosen(facts)}
    if not mine:
        return unknown("no address was chosen")
    for other in facts.store.nodes:
        for text in (other.ipv4, other.ipv6):
            if other.name != facts.host.node_name and text and ip_interface(text).ip in mine:
                return bad(f"Node({other.name}) has {text} as well")
    return good("no other Node has it")


@check(
    "kube-proxy-cluster-cidr",
    required=False,
    cause="kube-proxy hides the source of whatever it takes for traffic from outside the cluster:"
    " pods of a pool outside its cluster CIDR lose their address when they use services.",
    fix="Set kube-proxy's clusterCIDR to a range that contains every pool.",
)
def kube_proxy_cluster_cidr(facts: Facts) -> Finding:
    """Every pool lies inside kube-proxy's cluster CIDR."""
    proxy = facts.kubernetes.kube_proxy
    if proxy is None:
        return unknown("kube-proxy does not run here, or cannot be seen")
    if not proxy.cluster_cidr:
        return good("kube-proxy has no cluster CIDR: it hides no source")
    if not facts.store.allocating:
        return unknown("no pools are known")
    try:
        ranges = [ip_network(part.strip()) for part in proxy.cluster_cidr.split(",")]
    except ValueError:
        return bad(f"not a CIDR: {proxy.cluster_cidr}")
    outside = []
    for pool in facts.store.allocating:
        family = [one for one in ranges if one.version == pool.cidr.version]
        inside = any(
            pool.cidr.network_address in one and pool.cidr.prefixlen >= one.prefixlen
            for one in family
        )
        if family and not inside:
            outside.append(f"IPPool({pool.name}) {pool.cidr}")
    cidr_text = f"kube-proxy's cluster CIDR {proxy.cluster_cidr}"
    return (
        bad(f"{cidr_text}; outside: {', '.join(outside)}")
        if outside
        else good(f"{cidr_text} has all")
    )


@check(
    "kube-proxy-masquerade-all",
    required=False,
    cause="With --masquerade-all every service connection comes from the node: policy on the source"
    " pod can match no more.",
    fix="Run kube-proxy without --masquerade-all (iptables.masqueradeAll: false).",
)
def kube_proxy_masquerade_all(facts: Facts) -> Finding:
    """kube-proxy does not hide every source."""
    proxy = facts.kubernetes.kube_proxy
    if proxy is None:
        return unknown("kube-proxy does not run here, or cannot be seen")
    return bad("--masquerade-all is set") if proxy.masquerade_all else good("not set")
