"""Staged policies (docs/reference/data-model.md#staged-policies): policies on trial, stored and
shown but never enforced.

Tested in tests/libcalico/test_golden.py and tests/libcalico/test_defaults.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject
from libcalico.model.resources.rules import Rule


class StagedNetworkPolicySpec(Struct, frozen=True):
    """A NetworkPolicy's spec and its staged action: Set, Delete, Learn or Ignore."""

    stagedAction: str = ""
    tier: str = ""
    order: int | float | None = None
    ingress: list[Rule] = []
    egress: list[Rule] = []
    selector: str = ""
    types: list[str] = []
    serviceAccountSelector: str = ""
    performanceHints: list[str] = []

    def __post_init__(self) -> None:
        force_setattr(self, "order", numorstring.order(self.order))


class StagedNetworkPolicy(APIObject, frozen=True, kw_only=True):
    """A policy of one namespace, not yet in force."""

    kind: str = always("StagedNetworkPolicy")
    spec: StagedNetworkPolicySpec = always(StagedNetworkPolicySpec())


class StagedGlobalNetworkPolicySpec(Struct, frozen=True):
    """A GlobalNetworkPolicy's spec and its staged action: Set, Delete, Learn or Ignore."""

    stagedAction: str = ""
    tier: str = ""
    order: int | float | None = None
    ingress: list[Rule] = []
    egress: list[Rule] = []
    selector: str = ""
    types: list[str] = []
    doNotTrack: bool = False
    preDNAT: bool = False
    applyOnForward: bool = False
    serviceAccountSelector: str = ""
    namespaceSelector: str = ""
    performanceHints: list[str] = []

    def __post_init__(self) -> None:
        force_setattr(self, "order", numorstring.order(self.order))


class StagedGlobalNetworkPolicy(APIObject, frozen=True, kw_only=True):
    """A policy of the whole cluster, not yet in force."""

    kind: str = always("StagedGlobalNetworkPolicy")
    spec: StagedGlobalNetworkPolicySpec = always(StagedGlobalNetworkPolicySpec())


class LabelSelectorRequirement(Struct, frozen=True):
    """Kubernetes' selector expression: `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = always("")
    operator: str = always("")
    values: list[str] = []


class LabelSelector(Struct, frozen=True):
    """Kubernetes' label selector (metav1)."""

    matchLabels: dict[str, str] = {}
    matchExpressions: list[LabelSelectorRequirement] = []


class KubernetesIPBlock(Struct, frozen=True, rename={"except_": "except"}):
    """A network without some of its parts."""

    cidr: str = always("")
    except_: list[str] = []


class KubernetesPolicyPort(Struct, frozen=True):
    """A port of a Kubernetes policy: a number, or a container port's name."""

    protocol: str | None = None
    port: int | str | None = None
    endPort: int | None = None


class KubernetesPolicyPeer(Struct, frozen=True):
    """One side of a connection in a Kubernetes policy."""

    podSelector: LabelSelector | None = None
    namespaceSelector: LabelSelector | None = None
    ipBlock: KubernetesIPBlock | None = None


class KubernetesIngressRule(Struct, frozen=True, rename={"from_": "from"}):
    """Allowed incoming connections."""

    ports: list[KubernetesPolicyPort] = []
    from_: list[KubernetesPolicyPeer] = []


class KubernetesEgressRule(Struct, frozen=True):
    """Allowed outgoing connections."""

    ports: list[KubernetesPolicyPort] = []
    to: list[KubernetesPolicyPeer] = []


class StagedKubernetesNetworkPolicySpec(Struct, frozen=True):
    """A Kubernetes NetworkPolicy's spec and its staged action."""

    stagedAction: str = ""
    podSelector: LabelSelector = always(LabelSelector())
    ingress: list[KubernetesIngressRule] = []
    egress: list[KubernetesEgressRule] = []
    policyTypes: list[str] = []


class StagedKubernetesNetworkPolicy(APIObject, frozen=True, kw_only=True):
    """A Kubernetes NetworkPolicy, not yet in force."""

    kind: str = always("StagedKubernetesNetworkPolicy")
    spec: StagedKubernetesNetworkPolicySpec = always(StagedKubernetesNetworkPolicySpec())
