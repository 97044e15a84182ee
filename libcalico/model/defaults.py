"""Defaults that Calico writes into stored resources (docs/reference/data-model.md#validation,
#side-effects-of-writes, #ippool)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from ipaddress import ip_network
from types import UnionType
from typing import TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from libcalico import durations
from libcalico.errors import InvalidValue
from libcalico.model.base.meta import Duration
from libcalico.model.base.overlay import item_struct
from libcalico.model.kinds import Resource
from libcalico.model.resources.bgp import BGPConfiguration
from libcalico.model.resources.cluster import FIXED_TIERS, Tier
from libcalico.model.resources.controllers import (
    KubeControllersConfiguration,
    KubeControllersConfigurationSpec,
)
from libcalico.model.resources.endpoint import WorkloadEndpoint
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from libcalico.model.resources.policy import GlobalNetworkPolicy, NetworkPolicy, with_defaults
from libcalico.model.resources.pool import DEFAULT_BLOCK_SIZE, IPPool, IPPoolSpec
from libcalico.model.resources.staged import (
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)

R = TypeVar("R", bound=Resource)
S = TypeVar("S", bound=msgspec.Struct)

LEAK_GRACE = "15m0s"
METRICS_PORT = 9094
FELIX = {
    "nftablesMode": "Auto",
    "nftablesFlowTableOffload": "Disabled",
    "bpfConnectTimeLoadBalancing": "TCP",
    "bpfHostNetworkedNATWithoutCTLB": "Enabled",
    "floatingIPs": "Disabled",
}


def apply_defaults(resource: R) -> R:
    """The resource with the defaults that v3.32 fills in before it stores: pure, and idempotent.

    A pool's CIDR becomes canonical; text that is no CIDR, or has bits behind the mask, is left for
    `validate`. Durations become canonical, too (`90s` is stored as `1m30s`).
    """
    return canonical_durations(_filled(resource))


def _filled(resource: R) -> R:
    match resource:
        case (
            NetworkPolicy()
            | GlobalNetworkPolicy()
            | StagedNetworkPolicy()
            | StagedGlobalNetworkPolicy()
        ):
            return cast(R, with_defaults(resource))
        case WorkloadEndpoint():
            return cast(R, _endpoint(resource))
    fields = _spec_fields(resource)
    return replace(resource, spec=replace(resource.spec, **fields)) if fields else resource


def _spec_fields(resource: Resource) -> Mapping[str, object]:
    """The fields of the spec that have defaults, with their values."""
    match resource:
        case IPPool(spec=spec):
            return _pool(spec)
        case BGPConfiguration(spec=spec):
            return {
                "logSeverityScreen": spec.logSeverityScreen or "Info",
                "serviceLoadBalancerAggregation": spec.serviceLoadBalancerAggregation or "Enabled",
            }
        case StagedKubernetesNetworkPolicy(spec=spec):
            return {"stagedAction": spec.stagedAction or "Set"}
        case KubeControllersConfiguration(spec=spec):
            return _controllers(spec)
        case Tier(metadata=metadata, spec=spec):
            order, action = FIXED_TIERS.get(metadata.name, (None, "Deny"))
            return {
                "order": order if spec.order is None else spec.order,
                "defaultAction": spec.defaultAction or action,
            }
        case FelixConfiguration(spec=spec):
            return _felix(spec)
    return {}


def _felix(spec: FelixConfigurationSpec) -> Mapping[str, object]:
    """Fill in defaults, and translate the older field of connect-time load balancing.

    `bpfConnectTimeLoadBalancingEnabled: true` is stored beside `Enabled`, not in place of it. NAT
    without it is then off, even where the successors say otherwise. Calico does the same, and its
    operator sets the older field.
    """
    filled = {name: value for name, value in FELIX.items() if not getattr(spec, name)}
    if (older := spec.bpfConnectTimeLoadBalancingEnabled) is not None:
        filled["bpfConnectTimeLoadBalancing"] = "Enabled" if older else "Disabled"
        filled["bpfHostNetworkedNATWithoutCTLB"] = "Disabled"
    return filled


def _controllers(spec: KubeControllersConfigurationSpec) -> Mapping[str, object]:
    controllers = spec.controllers
    port = spec.prometheusMetricsPort
    filled: dict[str, object] = {}
    if controllers.node is not None and controllers.node.leakGracePeriod is None:
        filled["node"] = replace(controllers.node, leakGracePeriod=LEAK_GRACE)
    if controllers.loadBalancer is not None and not controllers.loadBalancer.assignIPs:
        filled["loadBalancer"] = replace(controllers.loadBalancer, assignIPs="AllServices")
    if controllers.policyMigration is not None and not controllers.policyMigration.enabled:
        filled["policyMigration"] = replace(controllers.policyMigration, enabled="Enabled")
    if controllers.migration is not None and not controllers.migration.policyNameMigrator:
        filled["migration"] = replace(controllers.migration, policyNameMigrator="Enabled")
    return {
        "healthChecks": spec.healthChecks or "Enabled",
        "prometheusMetricsPort": METRICS_PORT if port is None else port,
        "controllers": replace(controllers, **filled),
    }


def canonical_durations(value: S) -> S:
    """The value with every duration as Go writes it; text that is no duration stays."""
    changed: dict[str, object] = {}
    for name, is_duration in _duration_paths(value.__class__):
        old = getattr(value, name)
        if old is None:
            continue
        if isinstance(old, list):
            new: object = [canonical_durations(item) for item in old]
        else:
            new = _duration_text(old) if is_duration else canonical_durations(old)
        if new != old:
            changed[name] = new
    return replace(value, **changed) if changed else value


def _duration_text(text: str) -> str:
    try:
        return durations.text(durations.parse(text))
    except ValueError:
        return text


@cache
def _duration_paths(type_: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    """The fields of a struct type that are durations (True) or hold some further down."""
    paths = []
    for name, hint in get_type_hints(type_, include_extras=True).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if Duration in parts:
            paths.append((name, True))
            continue
        inner, _ = item_struct(hint)
        if inner is not None and _duration_paths(inner):
            paths.append((name, False))
    return tuple(paths)


def _pool(spec: IPPoolSpec) -> Mapping[str, object]:
    if not spec.cidr.rpartition("/")[2].isdigit():
        return {}
    try:
        # Strictly: bits behind the mask are refused by validation, not dropped.
        network = ip_network(spec.cidr)
    except ValueError:
        return {}
    return {
        "cidr": str(network),
        "vxlanMode": spec.vxlanMode or "Never",
        "ipipMode": spec.ipipMode or "Never",
        "blockSize": spec.blockSize or DEFAULT_BLOCK_SIZE[network.version],
        "nodeSelector": spec.nodeSelector or "all()",
        "allowedUses": spec.allowedUses or ["Workload", "Tunnel"],
        "assignmentMode": spec.assignmentMode or "Automatic",
    }


def _endpoint(endpoint: WorkloadEndpoint) -> WorkloadEndpoint:
    # It imports half of the validators, for the one kind that has names of its own.
    from libcalico.model.validation.endpoint import expected_name

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
