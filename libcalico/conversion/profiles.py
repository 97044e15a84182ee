"""Namespaces and service accounts as profiles
(docs/reference/data-model.md#labels-and-profiles-of-pods).

A profile carries their labels to every endpoint that names it, under a prefix, so that
selectors over namespaces and accounts are selectors over labels. The profile of a
namespace lets everything pass: policy alone closes an endpoint, as Kubernetes wants it.
Tested in tests/libcalico/test_conversion.py.
"""

from __future__ import annotations

from libcalico import names
from libcalico.conversion import tree
from libcalico.conversion.tree import Tree
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.profile import Profile, ProfileSpec
from libcalico.model.resources.rules import Rule

NAMESPACE_PREFIX = "pcns."
SERVICE_ACCOUNT_PREFIX = "pcsa."
NAME_LABEL = "projectcalico.org/name"


def namespace_profile(document: Tree) -> Profile:
    """The profile `kns.<name>` of a v1 Namespace. Raises InvalidValue."""
    name = tree.name_of(document)
    allow = [Rule(action="Allow")]
    return Profile(
        metadata=Metadata(name=names.namespace_profile(name)),
        spec=ProfileSpec(
            ingress=allow, egress=allow, labelsToApply=_labels(document, NAMESPACE_PREFIX, name)
        ),
    )


def service_account_profile(document: Tree) -> Profile:
    """The profile `ksa.<namespace>.<name>` of a v1 ServiceAccount. Raises InvalidValue."""
    name, namespace = tree.name_of(document), tree.namespace_of(document)
    return Profile(
        metadata=Metadata(name=names.service_account_profile(namespace, name)),
        spec=ProfileSpec(labelsToApply=_labels(document, SERVICE_ACCOUNT_PREFIX, name)),
    )


def _labels(document: Tree, prefix: str, name: str) -> dict[str, str]:
    labels = tree.labels(tree.mapping(document, "metadata", ""), "labels", "metadata")
    return {f"{prefix}{key}": value for key, value in labels.items()} | {prefix + NAME_LABEL: name}
