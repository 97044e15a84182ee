"""Defaults that Calico writes into what it stores (data model 2.0, 1.13, 2.3)."""

from __future__ import annotations

from typing import TypeVar, cast

from msgspec.structs import replace

from libcalico.errors import InvalidValue
from libcalico.model.bgp import BGPConfiguration
from libcalico.model.cluster import FIXED_TIERS, Tier
from libcalico.model.endpoint import WorkloadEndpoint
from libcalico.model.felixconfig import FelixConfiguration
from libcalico.model.kinds import Resource
from libcalico.model.policy import GlobalNetworkPolicy, NetworkPolicy, with_defaults
from libcalico.model.pool import IPPool
from libcalico.model.validate_endpoint import expected_name
from libcalico.model.validate_pool import DEFAULT_BLOCK_SIZE

R = TypeVar("R", bound=Resource)

FELIX = {
    "nftablesMode": "Auto",
    "bpfConnectTimeLoadBalancing": "TCP",
    "bpfHostNetworkedNATWithoutCTLB": "Enabled",
    "floatingIPs": "Disabled",
}


def apply_defaults(resource: R) -> R:
    """The resource with what v3.32 fills in before it stores: pure, and idempotent.

    A pool's CIDR becomes canonical; one that is no CIDR is left for `validate`.
    """
    match resource:
        case IPPool():
            return cast(R, _pool(resource))
        case BGPConfiguration(spec=spec):
            return replace(
                resource,
                spec=replace(
                    spec,
                    logSeverityScreen=spec.logSeverityScreen or "Info",
                    serviceLoadBalancerAggregation=spec.serviceLoadBalancerAggregation or "Enabled",
                ),
            )
        case NetworkPolicy() | GlobalNetworkPolicy():
            return cast(R, with_defaults(resource))
        case Tier():
            return cast(R, _tier(resource))
        case WorkloadEndpoint():
            return cast(R, _endpoint(resource))
        case FelixConfiguration(spec=spec):
            missing = {name: value for name, value in FELIX.items() if not getattr(spec, name)}
            return replace(resource, spec=replace(spec, **missing))
    return resource


def _tier(tier: Tier) -> Tier:
    order, action = FIXED_TIERS.get(tier.metadata.name, (None, "Deny"))
    spec = tier.spec
    return replace(
        tier,
        spec=replace(
            spec,
            order=order if spec.order is None else spec.order,
            defaultAction=spec.defaultAction or action,
        ),
    )


def _pool(pool: IPPool) -> IPPool:
    spec = pool.spec
    try:
        network = spec.network
    except ValueError:
        return pool
    return replace(
        pool,
        spec=replace(
            spec,
            cidr=str(network),
            vxlanMode=spec.vxlanMode or "Never",
            ipipMode=spec.ipipMode or "Never",
            blockSize=spec.blockSize or DEFAULT_BLOCK_SIZE[network.version],
            nodeSelector=spec.nodeSelector or "all()",
            allowedUses=spec.allowedUses or ["Workload", "Tunnel"],
            assignmentMode=spec.assignmentMode or "Automatic",
        ),
    )


def _endpoint(endpoint: WorkloadEndpoint) -> WorkloadEndpoint:
    metadata = endpoint.metadata
    try:
        name = metadata.name or expected_name(endpoint.spec)
    except InvalidValue:
        name = metadata.name
    forced = {
        "projectcalico.org/namespace": metadata.namespace,
        "projectcalico.org/orchestrator": endpoint.spec.orchestrator,
    }
    return replace(
        endpoint, metadata=replace(metadata, name=name, labels={**metadata.labels, **forced})
    )
