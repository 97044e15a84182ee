"""NetworkPolicy by the letter of Kubernetes' API: the second oracle, without Calico in between.

It knows neither the conversion nor Calico's rules. Judged against the first oracle, which reads
the converted objects, in tests/cyclonus/test_families.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from itertools import permutations
from typing import Any

from tests.cyclonus.cluster import DOORS, Cluster, Document, Labels
from tests.netpol.matrix import Pair

SIDE = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}


def matrices(cluster: Cluster, addresses: Mapping[str, str]) -> dict[str, dict[Pair, bool]]:
    """What each door's matrix must be."""
    found: dict[str, dict[Pair, bool]] = {}
    for door in DOORS:
        protocol, _, port = door.partition(":")
        judge = Judge(cluster, addresses, protocol.upper(), int(port))
        found[door] = {
            pair: judge.allows(*pair, "Egress") and judge.allows(*pair[::-1], "Ingress")
            for pair in permutations(cluster.pods, 2)
        }
    return found


class Judge:
    """Verdicts on one protocol and port."""

    def __init__(
        self, cluster: Cluster, addresses: Mapping[str, str], protocol: str, port: int
    ) -> None:
        self.cluster, self.addresses = cluster, addresses
        self.protocol, self.number = protocol, port

    def allows(self, subject: str, other: str, direction: str) -> bool:
        """Whether the policies about a pod let it talk with another in one direction."""
        section, side = SIDE[direction]
        isolated = False
        for (space, _), document in self.cluster.policies.items():
            spec = document["spec"]
            if direction not in spec["policyTypes"] or space != subject.partition("/")[0]:
                continue
            if not selects(spec["podSelector"], self.cluster.pods[subject]):
                continue
            isolated = True
            for rule in spec.get(section) or []:
                peers, ports = rule.get(side) or [], rule.get("ports") or []
                if peers and not any(self.peer(one, space, other) for one in peers):
                    continue
                if ports and not any(self.port(one) for one in ports):
                    continue
                return True
        return not isolated

    def peer(self, peer: Document, space: str, other: str) -> bool:
        """Whether a pod is meant by a peer of a policy in a namespace."""
        if "ipBlock" in peer:
            address = ip_address(self.addresses[other])
            block = peer["ipBlock"]
            return address in ip_network(block["cidr"]) and not any(
                address in ip_network(net) for net in block.get("except", [])
            )
        its_space = other.partition("/")[0]
        if "namespaceSelector" in peer:
            if not selects(peer["namespaceSelector"], self.cluster.namespaces[its_space]):
                return False
        elif its_space != space:
            return False
        return selects(peer.get("podSelector") or {}, self.cluster.pods[other])

    def port(self, port: Document) -> bool:
        """Whether a port of a rule covers ours. All pods name their ports alike."""
        if port.get("protocol", "TCP") != self.protocol:
            return False
        number = port.get("port")
        if number is None:
            return True
        if isinstance(number, str):
            return bool(number == f"serve-{self.number}-{self.protocol.lower()}")
        return bool(number <= self.number <= (port.get("endPort") or number))


def selects(selector: dict[str, Any], labels: Labels) -> bool:
    """Whether a label selector matches."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for one in selector.get("matchExpressions", []):
        found = labels.get(one["key"]) in one["values"]
        if found != {"In": True, "NotIn": False}[one["operator"]]:
            return False
    return True
