"""The peers of a ClusterNetworkPolicy's rules: pods, nodes or networks.

A rule of Calico's has networks of one family, so networks of both families become two ends. A
node stands for its addresses, which the caller passes in. A selector without a matching node
matches nothing.
Tested in tests/libcalico/test_cluster_policy.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from libcalico.conversion import label_selector, tree
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue
from libcalico.model.resources.rules import EntityRule
from libcalico.model.validation.checks import indexed
from libcalico.model.validation.rules import MAX_NETS
from libcalico.selectors.selectors import parse

INGRESS_PEERS = frozenset({"namespaces", "pods"})
EGRESS_PEERS = INGRESS_PEERS | {"nodes", "networks", "domainNames"}
_POD = frozenset({"namespaceSelector", "podSelector"})


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """A node for `nodes` peers: its labels, and the addresses of its status."""

    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()


Nodes = Sequence[NodeAddresses] | None
"""The cluster's nodes; None: not known."""


def pods_of(peer: Tree, path: str) -> tuple[str, str]:
    """(selector of namespaces, selector of pods) of a subject or peer. Raises InvalidValue.

    Exactly one of `namespaces` and `pods` must be there.
    """
    if tree.exactly_one(peer, ("namespaces", "pods"), path, " and ") == "namespaces":
        where = f"{path}.namespaces"
        spaces = label_selector.namespaces(tree.mapping(peer, "namespaces", path), where)
        return spaces, label_selector.KUBERNETES_PODS
    selectors, where = tree.mapping(peer, "pods", path), f"{path}.pods"
    tree.only(selectors, _POD, where)
    spaces = label_selector.namespaces(
        tree.mapping(selectors, "namespaceSelector", where), f"{where}.namespaceSelector"
    )
    pods = label_selector.pods(
        tree.mapping(selectors, "podSelector", where), f"{where}.podSelector"
    )
    return spaces, pods


def ends(
    items: Sequence[object], allowed: frozenset[str], nodes: Nodes, path: str
) -> list[EntityRule]:
    """The peers of a rule. Raises InvalidValue for a peer that Calico cannot express."""
    if not items:
        raise InvalidValue(path, items, "must have at least one peer")
    peers = []
    for where, item in indexed(path, items):
        peers += _peer(tree.as_mapping(item, where), allowed, nodes, where)
    return peers


def _peer(peer: Tree, allowed: frozenset[str], nodes: Nodes, path: str) -> list[EntityRule]:
    tree.only(peer, allowed, path)
    name = tree.exactly_one(peer, sorted(allowed), path)
    where = f"{path}.{name}"
    if name == "domainNames":
        raise InvalidValue(where, peer[name], "domain names are not enforced by this release")
    if name == "nodes":
        return _nets(_addresses(tree.mapping(peer, name, path), nodes, where))
    if name == "networks":
        networks = tree.sequence(peer, name, path)
        if not networks:
            raise InvalidValue(where, networks, "must have at least one network")
        return _nets(_network(net, net_path) for net_path, net in indexed(where, networks))
    spaces, pods = pods_of(peer, path)
    return [EntityRule(selector=pods, namespaceSelector=spaces)]


def _addresses(selector: Tree, nodes: Nodes, path: str) -> list[str]:
    node_selector = parse(label_selector.namespaces(selector, path))
    if nodes is None:
        raise InvalidValue(path, dict(selector), "the cluster's nodes are not known")
    addresses = {
        address
        for node in nodes
        if node_selector.matches(node.labels)
        for address in node.addresses
    }
    return [str(ip_network(address)) for address in sorted(map(ip_address, addresses), key=_order)]


def _order(address: IPv4Address | IPv6Address) -> tuple[int, int]:
    return address.version, int(address)


def _nets(networks: Iterable[str]) -> list[EntityRule]:
    """Ends of one family and of at most as many networks as a rule may have."""
    families: dict[bool, list[str]] = {False: [], True: []}
    for net in dict.fromkeys(networks):
        families[":" in net].append(net)
    return [
        EntityRule(nets=nets[start : start + MAX_NETS])
        for nets in families.values()
        for start in range(0, len(nets), MAX_NETS)
    ]


def _network(text: object, path: str) -> str:
    try:
        if not isinstance(text, str) or "%" in text or not text.rpartition("/")[2].isdecimal():
            raise ValueError
        return str(ip_network(text, strict=False))
    except ValueError:
        raise InvalidValue(path, text, "must be a CIDR such as 10.0.0.0/8 or fd00::/8") from None
