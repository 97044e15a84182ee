"""Validators that refuse what Calico refuses: one function a kind.

`validate` raises the first problem; `problems` lists all. The rules are those of
docs/reference/data-model.md#validation: the Go validators and the CRD schema together, from 3.26
to today's release. A value that one of these releases takes is taken. libcalico/pools.py has the
rules that depend on other objects; libcalico/model/base/shape.py has types and unknown fields.

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from libcalico.errors import InvalidValue
from libcalico.model.kinds import KINDS, Resource
from libcalico.model.validation.checks import Problems


def problems(resource: Resource) -> list[InvalidValue]:
    """List everything that is wrong with a resource."""
    kind = KINDS[resource.kind]
    collected = Problems(f"{kind.name}({resource.metadata.name})")
    collected.metadata(resource.metadata, kind.namespaced)
    module, _, name = _CHECKS[kind.name].partition(":")
    # Imported for the kinds that come: a short command has one.
    check: Callable[..., None] = getattr(import_module(f"{__package__}.{module}"), name)
    check(resource, collected)
    return collected


def validate(resource: Resource) -> None:
    """Raise the first problem as InvalidValue; return when there is none."""
    errors = problems(resource)
    if errors:
        raise errors[0]


_CHECKS = {
    "Node": "node:check",
    "WorkloadEndpoint": "endpoint:check",
    "HostEndpoint": "endpoint:check_host",
    "IPPool": "pool:check",
    "IPReservation": "cluster:check_reservation",
    "BGPConfiguration": "bgp:check_configuration",
    "BGPPeer": "bgp:check_peer",
    "BGPFilter": "bgpfilter:check",
    "FelixConfiguration": "felix:check",
    "Tier": "cluster:check_tier",
    "Profile": "cluster:check_profile",
    "NetworkPolicy": "policy:check_policy",
    "GlobalNetworkPolicy": "policy:check_policy",
    "StagedNetworkPolicy": "staged:check",
    "StagedGlobalNetworkPolicy": "staged:check",
    "StagedKubernetesNetworkPolicy": "staged:check_kubernetes",
    "NetworkSet": "policy:check_set",
    "GlobalNetworkSet": "policy:check_set",
    "ClusterInformation": "cluster:check_information",
    "KubeControllersConfiguration": "controllers:check",
    "CalicoNodeStatus": "node:check_status",
    "IPAMConfiguration": "cluster:check_ipam",
    "BlockAffinity": "cluster:check_affinity",
    "LiveMigration": "cluster:check_migration",
}
