"""Any Kubernetes document that has a Calico form, by its kind.

Tested in tests/calicoctl/test_convert.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libcalico.conversion import tree
from libcalico.conversion.cluster_peers import Nodes
from libcalico.conversion.cluster_policy import API_VERSION, KIND, cluster_policy
from libcalico.conversion.network_policy import network_policy
from libcalico.conversion.profiles import namespace_profile, service_account_profile
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model.kinds import Resource

CONVERTIBLE = {
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("extensions/v1beta1", "NetworkPolicy"),
    ("v1", "Namespace"),
    ("v1", "ServiceAccount"),
    (API_VERSION, KIND),
}
OLDER = {
    "AdminNetworkPolicy": "tier Admin",
    "BaselineAdminNetworkPolicy": "tier Baseline",
}
"""Older kinds of Kubernetes' network policy API, and their replacement."""
NAME_LABEL = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The resource, and the problems of the rules that were left out of it."""

    resource: Resource
    dropped: list[InvalidValue] = field(default_factory=list)


def is_kubernetes(document: Tree) -> bool:
    """Whether a document is of a kind that `convert` takes."""
    version, kind = document.get("apiVersion"), document.get("kind")
    return isinstance(version, str) and isinstance(kind, str) and (version, kind) in CONVERTIBLE


def older_kind(kind: str) -> str:
    """The advice for a kind that Kubernetes gave up; empty for others."""
    if kind not in OLDER:
        return ""
    return (
        f"{kind} is not enforced: Kubernetes gave it up for ClusterNetworkPolicy "
        f"({API_VERSION}); write one with {OLDER[kind]}"
    )


def convert(document: Tree, nodes: Nodes = None) -> Conversion:
    """The Calico form of a document that the API server or a file holds.

    Fields that the API server fills in are filled in first. `nodes` are the cluster's, for peers
    that are nodes. Raises UnsupportedKind or InvalidValue.
    """
    kind = document.get("kind")
    subject = f"{kind}({_name_in(document)})"
    if refused := older_kind(str(kind)):
        raise UnsupportedKind(f"{subject}: {refused}")
    if not is_kubernetes(document):
        raise UnsupportedKind(
            f"{subject} of apiVersion {document.get('apiVersion')!r} cannot be converted; "
            "NetworkPolicy (networking.k8s.io/v1), ClusterNetworkPolicy "
            f"({API_VERSION}), Namespace and ServiceAccount (v1) can"
        )
    try:
        document = completed(document)
        if kind == "Namespace":
            return Conversion(namespace_profile(document))
        if kind == "ServiceAccount":
            return Conversion(service_account_profile(document))
        policy: Resource
        if kind == KIND:
            policy, dropped = cluster_policy(document, nodes)
        else:
            policy, dropped = network_policy(document)
    except InvalidValue as problem:
        raise _of(problem, subject) from None
    return Conversion(policy, [_of(problem, subject) for problem in dropped])


def completed(document: Tree) -> Tree:
    """The document with the fields that Kubernetes' API server fills in.

    `policyTypes` follows from the rules, and a namespace carries its name as a label.
    """
    if document.get("kind") == "Namespace":
        metadata = tree.mapping(document, "metadata", "")
        labels = {**tree.mapping(metadata, "labels", "metadata"), NAME_LABEL: metadata.get("name")}
        return {**document, "metadata": {**metadata, "labels": labels}}
    if document.get("kind") == "NetworkPolicy":
        spec = tree.mapping(document, "spec", "")
        if not spec.get("policyTypes"):
            types = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
            return {**document, "spec": {**spec, "policyTypes": types}}
    return document


def _of(problem: InvalidValue, subject: str) -> InvalidValue:
    return InvalidValue(problem.field, problem.value, problem.rule, subject)


def _name_in(document: Tree) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
