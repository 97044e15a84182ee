"""NetworkPolicy and GlobalNetworkPolicy (docs/reference/data-model.md#networkpolicy), and the
common parts of all tiered policies.

A policy is stored in another form than it is shown (1.12): `stored` and `shown` translate. The
codec applies both, so no other code sees the annotation that keeps the name. The staged forms
of the two kinds (libcalico/model/resources/staged.py) lie in tiers and are stored alike.
Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import force_setattr, replace

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject
from libcalico.model.resources.rules import Rule
from libcalico.model.resources.staged import StagedGlobalNetworkPolicy, StagedNetworkPolicy

DEFAULT_TIER = "default"
TIER_LABEL = "projectcalico.org/tier"
NAME_ANNOTATION = "projectcalico.org/metadata"
OLD_PREFIX = "default."
POLICY_KINDS = ("NetworkPolicy", "GlobalNetworkPolicy")
"""The kinds that are enforced."""
TIERED_KINDS = (*POLICY_KINDS, "StagedNetworkPolicy", "StagedGlobalNetworkPolicy")
"""The kinds that lie in a tier, which must exist first; their names are annotated."""
INGRESS, EGRESS = "Ingress", "Egress"


class NetworkPolicySpec(Struct, frozen=True):
    """Selector and rules of a policy of one namespace. `order` None is last."""

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


class NetworkPolicy(APIObject, frozen=True, kw_only=True):
    """A policy of one namespace."""

    kind: str = always("NetworkPolicy")
    spec: NetworkPolicySpec = always(NetworkPolicySpec())


class GlobalNetworkPolicySpec(Struct, frozen=True):
    """Selector and rules of a policy of the whole cluster. `order` None is last."""

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


class GlobalNetworkPolicy(APIObject, frozen=True, kw_only=True):
    """A policy of the whole cluster."""

    kind: str = always("GlobalNetworkPolicy")
    spec: GlobalNetworkPolicySpec = always(GlobalNetworkPolicySpec())


Policy = NetworkPolicy | GlobalNetworkPolicy
Tiered = Policy | StagedNetworkPolicy | StagedGlobalNetworkPolicy
P = TypeVar("P", bound=Tiered)


def tier_of(policy: Tiered) -> str:
    """The tier that a policy belongs to."""
    return policy.spec.tier or DEFAULT_TIER


def default_types(policy: Tiered) -> list[str]:
    """The directions of a policy that names none (docs/reference/data-model.md#networkpolicy)."""
    spec = policy.spec
    if not spec.egress:
        return [INGRESS]
    return [INGRESS, EGRESS] if spec.ingress else [EGRESS]


def with_defaults(policy: P) -> P:
    """Tier, types and the tier's label filled in as v3.32 stores them.

    A staged policy that stands for a deletion has no types.
    """
    tier = tier_of(policy)
    labels = {**policy.metadata.labels, TIER_LABEL: tier}
    filled: dict[str, object] = {"tier": tier}
    filled["types"] = list(policy.spec.types) or default_types(policy)
    if isinstance(policy, (StagedNetworkPolicy, StagedGlobalNetworkPolicy)):
        filled["stagedAction"] = policy.spec.stagedAction or "Set"
        if policy.spec.stagedAction == "Delete":
            filled["types"] = []
    return replace(
        policy,
        metadata=replace(policy.metadata, labels=labels),
        spec=replace(policy.spec, **filled),
    )


def stored(policy: P) -> P:
    """The policy as it is written: its name is kept in an annotation, its tier in a label."""
    metadata = policy.metadata
    import json  # only where there are policies

    name = json.dumps({"name": metadata.name}, separators=(",", ":"))
    return replace(
        policy,
        metadata=replace(
            metadata,
            labels={**metadata.labels, TIER_LABEL: tier_of(policy)},
            annotations={**metadata.annotations, NAME_ANNOTATION: name},
        ),
    )


def shown(policy: P, key_name: str) -> P:
    """The policy as it is read from the key `key_name`: the reverse of `stored`.

    The name in the annotation wins over the key. Without one (up to v3.29) the prefix
    `default.` of a policy in the default tier is no part of its name.
    """
    metadata = policy.metadata
    annotations = metadata.annotations
    name = _annotated(annotations.get(NAME_ANNOTATION, ""))
    if not name:
        name = metadata.name or key_name
        if NAME_ANNOTATION not in annotations and tier_of(policy) == DEFAULT_TIER:
            name = name.removeprefix(OLD_PREFIX) or name
    if NAME_ANNOTATION in annotations:
        annotations = {key: annotations[key] for key in annotations if key != NAME_ANNOTATION}
    labels = metadata.labels
    if TIER_LABEL not in labels:
        labels = {**labels, TIER_LABEL: DEFAULT_TIER}
    return replace(
        policy,
        metadata=replace(metadata, name=name, labels=labels, annotations=annotations),
    )


def _annotated(text: str) -> str:
    import json

    try:
        annotation = json.loads(text) if text else {}
    except ValueError:
        return ""
    name = annotation.get("name") if isinstance(annotation, dict) else None
    return name if isinstance(name, str) else ""
