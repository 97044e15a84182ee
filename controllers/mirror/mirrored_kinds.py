"""What is mirrored from Kubernetes: policies, namespaces, service accounts
(docs/reference/data-model.md#mirrors-of-kubernetes).

The names are Calico's, so that either program finds what the other wrote. Tested in
tests/controllers/test_mirrors.py.
"""

from __future__ import annotations

from controllers.mirror.mirror import Family
from controllers.mirror.objects import (
    NAMESPACES,
    NETWORK_POLICIES,
    SERVICE_ACCOUNTS,
    Namespace,
    NetworkPolicy,
    ServiceAccount,
)
from libcalico import names
from libcalico.conversion import POLICY_PREFIX, Conversion, convert
from libcalico.datastore.interface import Selection
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object
from libcalico.model.keys import ResourceKey


def _document(value: Object, version: str, kind: str, **more: object) -> dict[str, object]:
    metadata = {
        "name": value.metadata.name,
        "namespace": value.metadata.namespace,
        "labels": value.metadata.labels,
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _policy(value: NetworkPolicy) -> Conversion:
    return convert(_document(value, "networking.k8s.io/v1", "NetworkPolicy", spec=value.spec))


def _namespace(value: Namespace) -> Conversion | None:
    if value.status.phase == "Terminating":
        # Its pods are still ending under the labels that it had.
        return None
    return convert(_document(value, "v1", "Namespace"))


def _account(value: ServiceAccount) -> Conversion:
    return convert(_document(value, "v1", "ServiceAccount"))


POLICIES = Family(
    "policy",
    NETWORK_POLICIES,
    _policy,
    lambda name: ResourceKey("NetworkPolicy", POLICY_PREFIX + name.name, name.namespace),
    Selection("NetworkPolicy", name_prefix=POLICY_PREFIX),
)
NAMESPACE_PROFILES = Family(
    "namespace",
    NAMESPACES,
    _namespace,
    lambda name: ResourceKey("Profile", names.namespace_profile(name.name)),
    Selection("Profile", name_prefix=names.namespace_profile("")),
)


def _account_key(name: Name) -> ResourceKey:
    return ResourceKey("Profile", names.service_account_profile(name.namespace, name.name))


ACCOUNT_PROFILES = Family(
    "serviceaccount",
    SERVICE_ACCOUNTS,
    _account,
    _account_key,
    Selection("Profile", name_prefix="ksa."),
)
