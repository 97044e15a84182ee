"""Kubernetes objects as Calico resources: pure functions from parsed documents to structs."""

from libcalico.conversion.convert import CONVERTIBLE, Conversion, convert, is_kubernetes
from libcalico.conversion.network_policy import POLICY_PREFIX, network_policy
from libcalico.conversion.profiles import namespace_profile, service_account_profile

__all__ = [
    "CONVERTIBLE",
    "POLICY_PREFIX",
    "Conversion",
    "convert",
    "is_kubernetes",
    "namespace_profile",
    "network_policy",
    "service_account_profile",
]
