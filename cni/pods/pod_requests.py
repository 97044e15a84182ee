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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network

import msgspec

from cni.pods.pod_source import PodFacts
from cni.request.errors import CNIError, Code
from cni.request.reader import MAC_RULE, mac_address
from cni.request.request import Request
from cni.veth.orphan_veths import HOST_MAC
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


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """What a pod asks for beside its addresses; empty is nothing.

    `mac` of the container's end; `floating` addresses to be translated to its own; `sources`,
    networks whose addresses it wants to send from.
    """

    mac: str = ""
    floating: tuple[IPAddress, ...] = ()
    sources: tuple[str, ...] = ()


NOTHING = EndpointRequest()
_ANY: Mapping[int, IPAddress] = {4: ip_address("0.0.0.0"), 6: ip_address("::")}


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


def endpoint_request(request: Request, facts: PodFacts) -> EndpointRequest:
    """What else a pod asks for; raises CNIError 7 naming what cannot be honoured."""
    annotations = facts.annotations
    hardware = PREFIX + "hwAddr" in annotations
    floating = PREFIX + "floatingIPs" in annotations
    sources = PREFIX + "allowedSourcePrefixes" in annotations
    if not (hardware or floating or sources):
        return NOTHING
    return EndpointRequest(
        _mac(annotations[PREFIX + "hwAddr"]) if hardware else "",
        _floating(request, facts) if floating else (),
        _sources(facts) if sources else (),
    )


def translations(
    floating: Iterable[IPAddress], own: Sequence[IPAddress]
) -> tuple[tuple[IPAddress, IPAddress], ...]:
    """Pairs of floating address and the pod's own address of the same family.

    Raises CNIError 7 where the pod has none of that family.
    """
    by_family = {address.version: address for address in own}
    pairs = []
    for address in floating:
        if address.version not in by_family:
            raise _refused(
                "floatingIPs", str(address), f"of a family (IPv{address.version}) that the pod has"
            )
        pairs.append((address, by_family[address.version]))
    return tuple(pairs)


def check_families(requested: EndpointRequest, addressing: AddressRequest) -> None:
    """Raise CNIError 7 for a floating address of a family that the pod will not have."""
    if requested.floating:
        translations(requested.floating, [_ANY[family] for family in addressing.families])


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


def _mac(text: str) -> str:
    mac = mac_address(text.strip())
    if not mac:
        raise _refused("hwAddr", text, MAC_RULE)
    if mac == HOST_MAC:
        raise _refused("hwAddr", text, "another address than the host's end of every pod has")
    return mac


def _floating(request: Request, facts: PodFacts) -> tuple[IPAddress, ...]:
    if not request.config.floating_ips:
        raise _not_allowed("floatingIPs", "floating_ips")
    texts = _texts(facts.annotations, "floatingIPs")
    rule = "a list of unicast IP addresses, each at most once"
    try:
        addresses = tuple(ip_address(text) for text in texts)
    except ValueError:
        raise _refused("floatingIPs", list(texts), rule) from None
    if len(set(addresses)) != len(addresses) or not all(map(_usable, addresses)):
        raise _refused("floatingIPs", list(texts), rule)
    return addresses


def _sources(facts: PodFacts) -> tuple[str, ...]:
    texts = _texts(facts.annotations, "allowedSourcePrefixes")
    try:
        return tuple(str(ip_network(text, strict=False)) for text in texts)
    except ValueError:
        raise _refused(
            "allowedSourcePrefixes", list(texts), "a list of networks in CIDR notation"
        ) from None


def _usable(address: IPAddress) -> bool:
    """Whether packets to it may be led to a pod: not what every host keeps to itself."""
    return is_host(address) and not address.is_link_local


def _unmanaged_addresses(request: Request, facts: PodFacts) -> tuple[IPAddress, ...]:
    name = "ipAddrsNoIpam"
    if PREFIX + name not in facts.annotations:
        return ()
    if not request.config.addresses_without_ipam:
        raise _not_allowed(name, "ip_addrs_no_ipam")
    if PREFIX + "ipAddrs" in facts.annotations:
        raise CNIError(
            Code.INVALID_CONFIG,
            f"annotations {PREFIX}{name} and {PREFIX}ipAddrs exclude each other",
            "of the pod",
        )
    addresses = _annotated_addresses(facts, name)
    if not all(map(_usable, addresses)):
        raise _refused(name, [str(address) for address in addresses], "a list of unicast addresses")
    return addresses


def _families(request: Request, facts: PodFacts) -> tuple[int, ...]:
    named = _inherited(facts, "ipFamilies")
    if named:
        unknown = [name for name in named if name not in FAMILIES]
        if unknown or len(set(named)) != len(named):
            raise _refused("ipFamilies", list(named), "a list of IPv4 and IPv6, each at most once")
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
    texts = _texts(facts.annotations, name)
    try:
        addresses = tuple(ip_address(text) for text in texts)
    except ValueError:
        raise _refused(name, list(texts), ONE_EACH) from None
    if len({address.version for address in addresses}) != len(addresses):
        raise _refused(name, list(texts), ONE_EACH)
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
    except NO_DOCUMENT:
        raise _refused(name, value, 'a JSON list of strings, such as ["..."]') from None


def _refused(name: str, value: object, rule: str) -> CNIError:
    return CNIError(
        Code.INVALID_CONFIG, f"annotation {PREFIX}{name}: {value!r} is not {rule}", "of the pod"
    )


def _not_allowed(name: str, key: str) -> CNIError:
    return CNIError(
        Code.INVALID_CONFIG,
        f"annotation {PREFIX}{name} is not allowed here: requested feature is not enabled: {key}",
        f"an administrator may set feature_control.{key} to true in the network configuration",
    )
