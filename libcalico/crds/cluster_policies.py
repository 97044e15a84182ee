"""ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2) as a definition of its own.

The kind is Kubernetes' own; this is for clusters that do not have its definition yet. It takes
what upstream's experimental channel takes (network-policy-api v0.2.0): nodes and domain names are
peers. `libcalico.conversion.cluster_policy` converts the objects.
Tested in tests/controllers/test_cluster_policies.py.
"""

from __future__ import annotations

from libcalico.conversion.cluster_policy import ACTIONS, MAX_NAME, MAX_PRIORITY, TIERS
from libcalico.crds.pieces import Piece, each, filled, limits, network, words
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import Condition
from libcalico.model.resources.staged import LabelSelector

MOST = 25
_LABEL = "[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?"
DOMAIN = rf"^(\*\.)?({_LABEL}\.)+{_LABEL}\.?$"


class NamespacedPod(Struct, frozen=True):
    """Pods by their labels, in namespaces by theirs; an empty selector is all."""

    namespaceSelector: LabelSelector = always(LabelSelector())
    podSelector: LabelSelector = always(LabelSelector())


class Subject(Struct, frozen=True):
    """The pods that the policy is about: one of the two."""

    namespaces: LabelSelector | None = None
    pods: NamespacedPod | None = None


class EgressPeer(Struct, frozen=True):
    """A peer of outgoing connections: one of these."""

    namespaces: LabelSelector | None = None
    pods: NamespacedPod | None = None
    nodes: LabelSelector | None = None
    networks: list[str] = []
    domainNames: list[str] = []


class PortRange(Struct, frozen=True):
    """Ports, both ends included."""

    start: int = 0
    end: int = 0


class Port(Struct, frozen=True):
    """One port, or a range of them."""

    number: int = 0
    range: PortRange | None = None


class ProtocolMatch(Struct, frozen=True):
    """A protocol; without a port every port of it."""

    destinationPort: Port | None = None


class Protocol(Struct, frozen=True):
    """One of these; a named port is that of the container."""

    tcp: ProtocolMatch | None = None
    udp: ProtocolMatch | None = None
    sctp: ProtocolMatch | None = None
    destinationNamedPort: str = ""


class IngressRule(Struct, frozen=True, rename={"from_": "from"}):
    """Accept, deny or pass on the traffic from any of these."""

    name: str = ""
    action: str = ""
    from_: list[Subject] = []
    protocols: list[Protocol] = []


class EgressRule(Struct, frozen=True):
    """Accept, deny or pass on the traffic to any of these."""

    name: str = ""
    action: str = ""
    to: list[EgressPeer] = []
    protocols: list[Protocol] = []


class ClusterNetworkPolicySpec(Struct, frozen=True):
    """An administrator's rules for pods of the cluster, before or behind their owners' rules."""

    tier: str = ""
    priority: int = 0
    subject: Subject = always(Subject())
    ingress: list[IngressRule] = []
    egress: list[EgressRule] = []


class ClusterNetworkPolicyStatus(Struct, frozen=True):
    """The reports of implementations."""

    conditions: list[Condition] = []


ONE: Piece = {"minProperties": 1, "maxProperties": 1}
_NUMBER = limits(1, 65535)
_COMMON: dict[str, Piece] = {
    "name": {"maxLength": MAX_NAME},
    "action": filled(words(ACTIONS, empty=False)),
    "protocols": each(ONE, MOST, 1),
}
_PEERS = filled(each(ONE, MOST, 1))

TABLE: dict[type, dict[str, Piece]] = {
    ClusterNetworkPolicySpec: {
        "tier": filled(words(TIERS, empty=False)),
        "priority": filled(limits(0, MAX_PRIORITY)),
        "subject": filled(ONE),
        "ingress": {"maxItems": MOST},
        "egress": {"maxItems": MOST},
    },
    NamespacedPod: {"podSelector": filled()},
    IngressRule: {**_COMMON, "from_": _PEERS},
    EgressRule: {**_COMMON, "to": _PEERS},
    EgressPeer: {
        "networks": each({**network(bare=False), "maxLength": 43}, MOST, 1, once=True),
        "domainNames": each({"pattern": DOMAIN}, MOST, 1, once=True),
    },
    Protocol: {"destinationNamedPort": {"minLength": 1}},
    Port: {"number": _NUMBER},
    PortRange: {"start": filled(_NUMBER), "end": filled(_NUMBER)},
    ClusterNetworkPolicyStatus: {
        "conditions": filled(
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    },
    Condition: {"type": filled(), "status": filled()},
}
