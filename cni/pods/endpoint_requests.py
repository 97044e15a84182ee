"""What a pod asks for beside its addresses: a MAC, floating addresses, further source prefixes.

Floating addresses and source prefixes reach beyond the pod, so they have an authority elsewhere
(POD-1): the network's configuration, and felix's.

Pure. Source: docs/reference/data-model.md#annotations-of-pods. Tested in
`tests/cni/test_pod_requests.py` and, as an attacker, in `tests/advisories/test_annotations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from cni.pods.pod_requests import PREFIX, AddressRequest, is_usable, not_allowed, refused, texts_of
from cni.pods.pod_source import PodFacts
from cni.request.reader import MAC_RULE, mac_address
from cni.request.request import Request
from cni.veth.orphan_veths import HOST_MAC
from ipam.records.blocks import IPAddress
from libcalico.conversion import limit_annotations
from libcalico.model.resources.endpoint import QoSControls


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """What a pod asks for beside its addresses; empty is nothing.

    `mac` of the container's end; `floating` addresses to be translated to its own; `sources`,
    networks whose addresses it wants to send from; `controls`, limits and marks of its traffic,
    with `complaints` about those that are not as they were written.
    """

    mac: str = ""
    floating: tuple[IPAddress, ...] = ()
    sources: tuple[str, ...] = ()
    controls: QoSControls | None = None
    complaints: tuple[str, ...] = ()


NOTHING = EndpointRequest()
_ANY: Mapping[int, IPAddress] = {4: ip_address("0.0.0.0"), 6: ip_address("::")}


def endpoint_request(request: Request, facts: PodFacts) -> EndpointRequest:
    """What else a pod asks for; raises CNIError 7 naming what cannot be honoured."""
    annotations = facts.annotations
    hardware = PREFIX + "hwAddr" in annotations
    floating = PREFIX + "floatingIPs" in annotations
    sources = PREFIX + "allowedSourcePrefixes" in annotations
    limits = limit_annotations.asked(annotations)
    if not (hardware or floating or sources or limits is not limit_annotations.NOTHING):
        return NOTHING
    return EndpointRequest(
        _mac(annotations[PREFIX + "hwAddr"]) if hardware else "",
        _floating(request, facts) if floating else (),
        _sources(facts) if sources else (),
        limits.controls,
        limits.complaints,
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
            raise refused(
                "floatingIPs", str(address), f"of a family (IPv{address.version}) that the pod has"
            )
        pairs.append((address, by_family[address.version]))
    return tuple(pairs)


def check_families(requested: EndpointRequest, addressing: AddressRequest) -> None:
    """Raise CNIError 7 for a floating address of a family that the pod will not have."""
    if requested.floating:
        translations(requested.floating, [_ANY[family] for family in addressing.families])


def _mac(text: str) -> str:
    mac = mac_address(text.strip())
    if not mac:
        raise refused("hwAddr", text, MAC_RULE)
    if mac == HOST_MAC:
        raise refused("hwAddr", text, "another address than the host's end of every pod has")
    return mac


def _floating(request: Request, facts: PodFacts) -> tuple[IPAddress, ...]:
    if not request.config.floating_ips:
        raise not_allowed("floatingIPs", "floating_ips")
    texts = texts_of(facts.annotations, "floatingIPs")
    rule = "a list of unicast IP addresses, each at most once"
    try:
        addresses = tuple(ip_address(text) for text in texts)
    except ValueError:
        raise refused("floatingIPs", list(texts), rule) from None
    if len(set(addresses)) != len(addresses) or not all(map(is_usable, addresses)):
        raise refused("floatingIPs", list(texts), rule)
    return addresses


def _sources(facts: PodFacts) -> tuple[str, ...]:
    texts = texts_of(facts.annotations, "allowedSourcePrefixes")
    try:
        return tuple(str(ip_network(text, strict=False)) for text in texts)
    except ValueError:
        raise refused(
            "allowedSourcePrefixes", list(texts), "a list of networks in CIDR notation"
        ) from None
