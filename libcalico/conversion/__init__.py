"""Kubernetes objects as Calico resources: pure functions from parsed documents to structs."""

from libcalico.conversion.cluster_peers import NodeAddresses
from libcalico.conversion.cluster_policy import cluster_policy
from libcalico.conversion.convert import (
    Conversion,
    convert,
    is_kubernetes,
    older_kind,
)
from libcalico.conversion.network_policy import POLICY_PREFIX, network_policy
from libcalico.conversion.profiles import namespace_profile, service_account_profile

__all__ = [
    "POLICY_PREFIX",
    "Conversion",
    "NodeAddresses",
    "cluster_policy",
    "convert",
    "is_kubernetes",
    "namespace_profile",
    "network_policy",
    "older_kind",
    "service_account_profile",
]
