"""Validators that refuse what Calico refuses: one function a kind.

`validate` raises the first problem; `problems` lists all. The rules are those of
docs/reference/data-model.md#validation: the Go validators and the CRD schema together, from 3.26
to today's release. A value that one of these releases takes is taken. libcalico/pools.py has the
rules that depend on other objects; libcalico/model/base/shape.py has types and unknown fields.

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from collections.abc import Callable

from libcalico.errors import InvalidValue
from libcalico.model.kinds import KINDS, Resource
from libcalico.model.validation import bgp as validate_bgp
from libcalico.model.validation import bgpfilter as validate_filter
from libcalico.model.validation import cluster as validate_cluster
from libcalico.model.validation import controllers as validate_controllers
from libcalico.model.validation import endpoint as validate_endpoint
from libcalico.model.validation import felix as validate_felix
from libcalico.model.validation import node as validate_node
from libcalico.model.validation import policy as validate_policy
from libcalico.model.validation import pool as validate_pool
from libcalico.model.validation import staged as validate_staged
from libcalico.model.validation.checks import Problems


def problems(resource: Resource) -> list[InvalidValue]:
    """List everything that is wrong with a resource."""
    kind = KINDS[resource.kind]
    collected = Problems(f"{kind.name}({resource.metadata.name})")
    collected.metadata(resource.metadata, kind.namespaced)
    _CHECKS[kind.name](resource, collected)
    return collected


def validate(resource: Resource) -> None:
    """Raise the first problem as InvalidValue; return when there is none."""
    errors = problems(resource)
    if errors:
        raise errors[0]


_CHECKS: dict[str, Callable[..., None]] = {
    "Node": validate_node.check,
    "WorkloadEndpoint": validate_endpoint.check,
    "HostEndpoint": validate_endpoint.check_host,
    "IPPool": validate_pool.check,
    "IPReservation": validate_cluster.check_reservation,
    "BGPConfiguration": validate_bgp.check_configuration,
    "BGPPeer": validate_bgp.check_peer,
    "BGPFilter": validate_filter.check,
    "FelixConfiguration": validate_felix.check,
    "Tier": validate_cluster.check_tier,
    "Profile": validate_cluster.check_profile,
    "NetworkPolicy": validate_policy.check_policy,
    "GlobalNetworkPolicy": validate_policy.check_policy,
    "StagedNetworkPolicy": validate_staged.check,
    "StagedGlobalNetworkPolicy": validate_staged.check,
    "StagedKubernetesNetworkPolicy": validate_staged.check_kubernetes,
    "NetworkSet": validate_policy.check_set,
    "GlobalNetworkSet": validate_policy.check_set,
    "ClusterInformation": validate_cluster.check_information,
    "KubeControllersConfiguration": validate_controllers.check,
    "CalicoNodeStatus": validate_node.check_status,
    "IPAMConfiguration": validate_cluster.check_ipam,
    "BlockAffinity": validate_cluster.check_affinity,
    "LiveMigration": validate_cluster.check_migration,
}
