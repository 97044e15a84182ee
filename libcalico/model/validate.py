"""What Calico refuses, refused in the same places: one function per kind.

`validate` raises the first problem; `problems` lists all. The rules are those of data
model section 2 (the Go validators and the CRD schema together). What depends on other
objects is elsewhere (libcalico/pools.py).

Tested in tests/libcalico/test_validate.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libcalico.errors import InvalidValue
from libcalico.model import validate_bgp, validate_endpoint, validate_policy, validate_pool
from libcalico.model.checks import SINGLE_LABEL, Problems
from libcalico.model.cluster import FIXED_TIERS, ClusterInformation, Tier
from libcalico.model.felixconfig import FelixConfiguration
from libcalico.model.ipam import IPAMConfiguration
from libcalico.model.kinds import KINDS, Resource
from libcalico.model.node import Node
from libcalico.model.profile import Profile
from libcalico.model.validate_rules import check_rules

ADDRESS_TYPES = ("CalicoNodeIP", "InternalIP", "ExternalIP")


def problems(resource: Resource) -> list[InvalidValue]:
    """Everything that is wrong with a resource."""
    kind = KINDS[resource.kind]
    found = Problems(f"{kind.name}({resource.metadata.name})")
    found.metadata(resource.metadata, kind.namespaced)
    if kind.name in _CHECKS:
        _CHECKS[kind.name](resource, found)
    return found


def validate(resource: Resource) -> None:
    """Raise the first problem as InvalidValue; return when there is none."""
    found = problems(resource)
    if found:
        raise found[0]


def _node(node: Node, found: Problems) -> None:
    spec, status = node.spec, node.status
    bgp = spec.bgp
    if bgp is not None:
        if bgp == type(bgp)():
            found.add("spec.bgp", "{}", "must not be empty: leave it out")
        validate_bgp.as_number(found, "spec.bgp.asNumber", bgp.asNumber)
        for version, address in ((4, bgp.ipv4Address), (6, bgp.ipv6Address)):
            if address:
                found.network(f"spec.bgp.ipv{version}Address", address, version, host_bits=True)
        found.address("spec.bgp.ipv4IPIPTunnelAddr", bgp.ipv4IPIPTunnelAddr, 4)
        found.address("spec.bgp.routeReflectorClusterID", bgp.routeReflectorClusterID, 4)
    found.address("spec.ipv4VXLANTunnelAddr", spec.ipv4VXLANTunnelAddr, 4)
    found.address("spec.ipv6VXLANTunnelAddr", spec.ipv6VXLANTunnelAddr, 6)
    found.mac("spec.vxlanTunnelMACAddr", spec.vxlanTunnelMACAddr)
    found.mac("spec.vxlanTunnelMACAddrV6", spec.vxlanTunnelMACAddrV6)
    if spec.wireguard is not None:
        wireguard = spec.wireguard
        found.address("spec.wireguard.interfaceIPv4Address", wireguard.interfaceIPv4Address, 4)
        found.address("spec.wireguard.interfaceIPv6Address", wireguard.interfaceIPv6Address, 6)
    for index, address_row in enumerate(spec.addresses):
        where = f"spec.addresses[{index}]"
        found.network(f"{where}.address", address_row.address)
        found.one_of(f"{where}.type", address_row.type, ADDRESS_TYPES)
    found.wireguard_key("status.wireguardPublicKey", status.wireguardPublicKey)
    found.wireguard_key("status.wireguardPublicKeyV6", status.wireguardPublicKeyV6)


def _profile(profile: Profile, found: Problems) -> None:
    check_rules(found, "spec.ingress", profile.spec.ingress)
    check_rules(found, "spec.egress", profile.spec.egress)
    found.labels("spec.labelsToApply", profile.spec.labelsToApply)


def _felix(felix: FelixConfiguration, found: Problems) -> None:
    name, selector = felix.metadata.name, felix.spec.nodeSelector
    if name == "default" or name.startswith("node."):
        if selector:
            found.add("spec.nodeSelector", selector, f"not allowed in the object named {name}")
    elif not selector:
        found.add(
            "metadata.name", name, "must be default or node.<name>, or spec.nodeSelector be set"
        )
    if selector:
        found.selector("spec.nodeSelector", str(selector))


def _tier(tier: Tier, found: Problems) -> None:
    name, spec = tier.metadata.name, tier.spec
    if len(name) > 63 or not SINGLE_LABEL.fullmatch(name):
        found.add("metadata.name", name, "must be one DNS label of at most 63 characters")
    found.one_of("spec.defaultAction", spec.defaultAction, ("Deny", "Pass"))
    if name in FIXED_TIERS:
        order, action = FIXED_TIERS[name]
        if spec.order is not None and spec.order != order:
            found.add("spec.order", spec.order, f"is always {order} in tier {name}")
        if spec.defaultAction is not None and spec.defaultAction != action:
            found.add("spec.defaultAction", spec.defaultAction, f"is always {action} in {name}")


def _cluster(info: ClusterInformation, found: Problems) -> None:
    _only_default(info.metadata.name, found)


def _ipam(config: IPAMConfiguration, found: Problems) -> None:
    _only_default(config.metadata.name, found)
    found.limits("spec.maxBlocksPerHost", config.spec.maxBlocksPerHost, 0, 1_000_000)
    found.limits("spec.ipCooldownSeconds", config.spec.ipCooldownSeconds, 0, 1200)
    found.one_of(
        "spec.kubeVirtVMAddressPersistence",
        config.spec.kubeVirtVMAddressPersistence,
        ("Enabled", "Disabled"),
    )


def _only_default(name: str, found: Problems) -> None:
    if name != "default":
        found.add("metadata.name", name, "the only object of this kind is named default")


_CHECKS: dict[str, Callable[[Any, Problems], None]] = {
    "Node": _node,
    "WorkloadEndpoint": validate_endpoint.check,
    "IPPool": validate_pool.check,
    "BGPConfiguration": validate_bgp.check_configuration,
    "BGPPeer": validate_bgp.check_peer,
    "FelixConfiguration": _felix,
    "Tier": _tier,
    "Profile": _profile,
    "NetworkPolicy": validate_policy.check_policy,
    "GlobalNetworkPolicy": validate_policy.check_policy,
    "NetworkSet": validate_policy.check_set,
    "GlobalNetworkSet": validate_policy.check_set,
    "ClusterInformation": _cluster,
    "IPAMConfiguration": _ipam,
}
