"""What a pod asks for: families, pools, fixed addresses, a MAC, further sources and addresses.

Four places can say it, the nearest to the pod wins: the pod's annotations, its namespace's,
the call itself (`runtimeConfig.ips`, `args.cni.ips`, `IP` in CNI_ARGS), the network's
configuration. An annotation that cannot be honoured fails the ADD with its name, value and
rule: a pod that asked for an address must not silently get another.

The author of a pod writes its annotations, so those that reach beyond the pod have an authority
elsewhere (POD-1; CVE-2022-28224 was one that had none). Addresses without IPAM and floating
addresses are refused unless the network's configuration allows them by `feature_control`; source
prefixes and floating addresses have no effect unless felix is configured for them.

Invariant POD-1: no annotation reaches beyond its pod unless an authority other than the pod's
author allows it.

Pure. Source: docs/reference/data-model.md#annotations-of-pods, conformance CAL-11, CAL-12, ARG-08,
ARG-09. Tested in `tests/cni/test_pod_requests.py`, and in `tests/advisories/test_annotations.py` as
an attacker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface

import msgspec

from cni.pods.pod_source import PodFacts
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from ipam.records.blocks import IPAddress
from libcalico.errors import NO_DOCUMENT
from libcalico.host_address import is_host

PREFIX = "cni.projectcalico.org/"
FAMILIES = {"IPv4": 4, "IPv6": 6}
POOLS = {4: "ipv4pools", 6: "ipv6pools"}
ONE_EACH = "a list of IP addresses, at most one of each family"


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """One address of each of `families`, from `pools` where a family names some.

    `fixed`, when not empty, are exactly the addresses wanted; the rest is then without meaning.
    `unmanaged`: they are taken as they are, no pool is asked.
    """

    families: tuple[int, ...]
    pools: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    fixed: tuple[IPAddress, ...] = ()
    unmanaged: bool = False


def address_request(request: Request, facts: PodFacts) -> AddressRequest:
    """The addresses that a pod asks for; raises CNIError 7 naming what cannot be honoured."""
    ipam = request.config.ipam
    if not (facts.annotations or facts.namespace_annotations or request.requested_ips):
        # Only the network's configuration says anything, as for nearly all pods.
        configured = {4: ipam.ipv4_pools, 6: ipam.ipv6_pools}
        return AddressRequest(_families(request, facts), configured)
    unmanaged = _unmanaged_addresses(request, facts)
    if unmanaged:
        return AddressRequest(tuple(a.version for a in unmanaged), fixed=unmanaged, unmanaged=True)
    fixed = _annotated_addresses(facts, "ipAddrs") or _requested_addresses(request)
    if fixed:
        return AddressRequest(tuple(address.version for address in fixed), fixed=fixed)
    pools = {
        family: _inherited(facts, POOLS[family]) or given
        for family, given in ((4, ipam.ipv4_pools), (6, ipam.ipv6_pools))
    }
    return AddressRequest(_families(request, facts), pools)


def check_delegated(request: Request, facts: PodFacts) -> None:
    """Raise CNIError 7 where a pod wants addresses that another IPAM plugin cannot be asked for."""
    for name in ("ipAddrs", "ipAddrsNoIpam"):
        if PREFIX + name in facts.annotations:
            raise CNIError(
                Code.INVALID_CONFIG,
                f"annotation {PREFIX}{name} needs ipam.type calico-ipam,"
                f" and this network's is {request.config.ipam.type!r}",
                "of the pod",
            )


def is_usable(address: IPAddress) -> bool:
    """Whether packets to it may be led to a pod: not what every host keeps to itself."""
    return is_host(address) and not address.is_link_local


def _unmanaged_addresses(request: Request, facts: PodFacts) -> tuple[IPAddress, ...]:
    name = "ipAddrsNoIpam"
    if PREFIX + name not in facts.annotations:
        return ()
    if not request.config.addresses_without_ipam:
        raise not_allowed(name, "ip_addrs_no_ipam")
    if PREFIX + "ipAddrs" in facts.annotations:
        raise CNIError(
            Code.INVALID_CONFIG,
            f"annotations {PREFIX}{name} and {PREFIX}ipAddrs exclude each other",
            "of the pod",
        )
    addresses = _annotated_addresses(facts, name)
    if not all(map(is_usable, addresses)):
        raise refused(name, [str(address) for address in addresses], "a list of unicast addresses")
    return addresses


def _families(request: Request, facts: PodFacts) -> tuple[int, ...]:
    named = _inherited(facts, "ipFamilies")
    if named:
        unknown = [name for name in named if name not in FAMILIES]
        if unknown or len(set(named)) != len(named):
            raise refused("ipFamilies", list(named), "a list of IPv4 and IPv6, each at most once")
        return tuple(sorted(FAMILIES[name] for name in named))
    ipam = request.config.ipam
    chosen = tuple(
        family for family, enabled in ((4, ipam.assign_ipv4), (6, ipam.assign_ipv6)) if enabled
    )
    if not chosen:
        raise CNIError(
            Code.INVALID_CONFIG,
            "invalid network configuration: ipam.assign_ipv4 and ipam.assign_ipv6 are both false",
        )
    return chosen


def _annotated_addresses(facts: PodFacts, name: str) -> tuple[IPAddress, ...]:
    texts = texts_of(facts.annotations, name)
    try:
        addresses = tuple(ip_address(text) for text in texts)
    except ValueError:
        raise refused(name, list(texts), ONE_EACH) from None
    if len({address.version for address in addresses}) != len(addresses):
        raise refused(name, list(texts), ONE_EACH)
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
    return texts_of(facts.annotations, name) or texts_of(facts.namespace_annotations, name)


def texts_of(annotations: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The list of texts in an annotation; raises CNIError 7 for another value."""
    value = annotations.get(PREFIX + name)
    if value is None:
        return ()
    try:
        return tuple(msgspec.json.decode(value, type=list[str]))
    except NO_DOCUMENT:
        raise refused(name, value, 'a JSON list of strings, such as ["..."]') from None


def refused(name: str, value: object, rule: str) -> CNIError:
    """The error of an annotation whose value cannot be honoured."""
    return CNIError(
        Code.INVALID_CONFIG, f"annotation {PREFIX}{name}: {value!r} is not {rule}", "of the pod"
    )


def not_allowed(name: str, key: str) -> CNIError:
    """The error of an annotation that `feature_control` does not allow."""
    return CNIError(
        Code.INVALID_CONFIG,
        f"annotation {PREFIX}{name} is not allowed here: requested feature is not enabled: {key}",
        f"an administrator may set feature_control.{key} to true in the network configuration",
    )
