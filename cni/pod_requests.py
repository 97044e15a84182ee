"""What a pod asks for: families, pools, fixed addresses.

Four places can say it, the nearest to the pod wins: the pod's annotations, its namespace's,
the call itself (`runtimeConfig.ips`, `args.cni.ips`, `IP` in CNI_ARGS), the network's
configuration. An annotation that cannot be honoured fails the ADD with its name, value and
rule: a pod that asked for an address must not silently get another.

Pure. Source: data model 5.5, conformance CAL-11, ARG-08, ARG-09. Tested in
`tests/cni/test_pod_requests.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from typing import Any

import msgspec

from cni.errors import CNIError, Code
from cni.pod_source import PodFacts
from cni.request import Request
from ipam.blocks import IPAddress

PREFIX = "cni.projectcalico.org/"
FAMILIES = {"IPv4": 4, "IPv6": 6}
POOLS = {4: "ipv4pools", 6: "ipv6pools"}
NOT_SERVED = ("ipAddrsNoIpam", "floatingIPs")


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """One address of each of `families`, from `pools` where a family names some.

    `fixed`, when not empty, are exactly the addresses wanted; the rest is then without meaning.
    """

    families: tuple[int, ...]
    pools: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    fixed: tuple[IPAddress, ...] = ()


def address_request(request: Request, facts: PodFacts) -> AddressRequest:
    """The addresses that a pod asks for; raises CNIError 7 naming what cannot be honoured."""
    for name in NOT_SERVED:
        if PREFIX + name in facts.annotations:
            raise CNIError(
                Code.UNSUPPORTED_FIELD,
                f"annotation {PREFIX}{name} is not served by this release: remove it",
            )
    fixed = _annotated_addresses(facts) or _requested_addresses(request)
    if fixed:
        return AddressRequest(tuple(address.version for address in fixed), fixed=fixed)
    ipam = request.config.ipam
    pools = {
        family: _inherited(facts, POOLS[family]) or configured
        for family, configured in ((4, ipam.ipv4_pools), (6, ipam.ipv6_pools))
    }
    return AddressRequest(_families(request, facts), pools)


def _families(request: Request, facts: PodFacts) -> tuple[int, ...]:
    named = _inherited(facts, "ipFamilies")
    if named:
        unknown = [name for name in named if name not in FAMILIES]
        if unknown or len(set(named)) != len(named):
            raise _refused("ipFamilies", list(named), "a list of IPv4 and IPv6, each at most once")
        return tuple(sorted(FAMILIES[name] for name in named))
    ipam = request.config.ipam
    chosen = tuple(
        family for family, wanted in ((4, ipam.assign_ipv4), (6, ipam.assign_ipv6)) if wanted
    )
    if not chosen:
        raise CNIError(
            Code.INVALID_CONFIG,
            "invalid network configuration: ipam.assign_ipv4 and ipam.assign_ipv6 are both false",
        )
    return chosen


def _annotated_addresses(facts: PodFacts) -> tuple[IPAddress, ...]:
    texts = _texts(facts.annotations, "ipAddrs")
    rule = "a list of IP addresses, at most one of each family"
    try:
        addresses = tuple(ip_address(text) for text in texts)
    except ValueError:
        raise _refused("ipAddrs", list(texts), rule) from None
    if len({address.version for address in addresses}) != len(addresses):
        raise _refused("ipAddrs", list(texts), rule)
    return addresses


def _requested_addresses(request: Request) -> tuple[IPAddress, ...]:
    try:
        # A prefix is accepted and has no meaning (ARG-08).
        addresses = tuple(ip_interface(text).ip for text in request.requested_ips)
    except ValueError as error:
        raise CNIError(
            Code.INVALID_ENVIRONMENT,
            f"CNI_ARGS: IP must be an IP address, optionally with a prefix: {error}",
        ) from None
    if len({address.version for address in addresses}) != len(addresses):
        raise CNIError(
            Code.UNSUPPORTED_FIELD,
            f"requested addresses ({', '.join(request.requested_ips)}): at most one of each family",
        )
    return addresses


def _inherited(facts: PodFacts, name: str) -> tuple[str, ...]:
    """The pod's list, else its namespace's."""
    return _texts(facts.annotations, name) or _texts(facts.namespace_annotations, name)


def _texts(annotations: Mapping[str, str], name: str) -> tuple[str, ...]:
    value = annotations.get(PREFIX + name)
    if value is None:
        return ()
    try:
        return tuple(msgspec.json.decode(value, type=list[str]))
    except msgspec.DecodeError:
        raise _refused(name, value, 'a JSON list of strings, such as ["..."]') from None


def _refused(name: str, value: Any, rule: str) -> CNIError:
    return CNIError(
        Code.INVALID_CONFIG, f"annotation {PREFIX}{name}: {value!r} is not {rule}", "of the pod"
    )
