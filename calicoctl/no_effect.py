"""What Calico stores although nothing can come of it: no session, no match.

Stored objects may have it, and a node says so where it meets it. This speaks against writing one,
not against reading it: so it stands beside the validators, which read as Calico does.
Tested in `tests/calicoctl/test_validate.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from libcalico import durations
from libcalico.errors import InvalidValue
from libcalico.model.base.numorstring import MAX_AS_NUMBER
from libcalico.model.kinds import Resource
from libcalico.model.resources.bgp import (
    BGPConfiguration,
    BGPConfigurationSpec,
    BGPPassword,
    BGPPeer,
    BGPPeerSpec,
)
from libcalico.model.resources.bgpfilter import BGPFilter, BGPFilterRule
from libcalico.model.validation.bgp import peer_address

Wrong = tuple[str, object, str]
"""A field, its value, and what is allowed."""
MOST_HOPS = 254


def no_effect(resource: Resource) -> list[InvalidValue]:
    """The fields of a resource of which nothing can come. Pure."""
    match resource:
        case BGPPeer(spec=spec):
            ignored = [*_ends(spec), *_terms(spec)]
        case BGPConfiguration(spec=spec):
            ignored = [*_mesh(spec)]
        case BGPFilter(spec=spec):
            ignored = [
                one
                for name in ("exportV4", "importV4", "exportV6", "importV6")
                for index, rule in enumerate(getattr(spec, name))
                for one in _lengths(f"spec.{name}[{index}]", rule)
            ]
        case _:
            return []
    subject = f"{resource.kind}({resource.metadata.name})"
    return [InvalidValue(field, value, rule, subject) for field, value, rule in ignored]


def _ends(spec: BGPPeerSpec) -> Iterator[Wrong]:
    if spec.peerIP and not spec.asNumber:
        rule = f"is required with spec.peerIP: the AS number of the peer, 1 to {MAX_AS_NUMBER}"
        yield "spec.asNumber", spec.asNumber, rule
    elif not (spec.peerIP or spec.peerSelector or spec.localWorkloadSelector):
        rule = "is required where there is no spec.peerSelector: the address of the peer"
        yield "spec.peerIP", "", rule
    peer = peer_address(spec.peerIP) if spec.peerIP else None
    if peer is None:
        return
    address, port = ip_address(peer[0]), peer[1]
    # With a port, another speaker of the node itself may be meant.
    if address.is_unspecified or address.is_multicast or (address.is_loopback and not port):
        yield "spec.peerIP", spec.peerIP, "must be the address of another host"


def _terms(spec: BGPPeerSpec) -> Iterator[Wrong]:
    yield from _password("spec.password", spec.password)
    yield from _duration("spec.maxRestartTime", spec.maxRestartTime)
    yield from _duration("spec.keepaliveTime", spec.keepaliveTime)
    if (spec.ttlSecurity or 0) > MOST_HOPS:
        yield "spec.ttlSecurity", spec.ttlSecurity, f"must be 0 (off) to {MOST_HOPS} hops"


def _mesh(spec: BGPConfigurationSpec) -> Iterator[Wrong]:
    yield from _password("spec.nodeMeshPassword", spec.nodeMeshPassword)
    yield from _duration("spec.nodeMeshMaxRestartTime", spec.nodeMeshMaxRestartTime)


def _password(field: str, password: BGPPassword | None) -> Iterator[Wrong]:
    if password is not None and password.secretKeyRef is None:
        yield field, {}, "must have a secretKeyRef: name and key of the secret"


def _duration(field: str, text: str | None) -> Iterator[Wrong]:
    try:
        negative = text is not None and durations.parse(text) < 0
    except ValueError:
        return  # the validators say so
    if negative:
        yield field, text, "must not be negative"


def _lengths(where: str, rule: BGPFilterRule) -> Iterator[Wrong]:
    lengths = rule.prefixLength
    try:
        network = ip_network(rule.cidr, strict=False)
    except ValueError:
        return  # the validators say so
    if lengths is None:
        return
    low = network.prefixlen if lengths.min is None else lengths.min
    high = network.max_prefixlen if lengths.max is None else lengths.max
    if low > high:
        value = {"min": lengths.min, "max": lengths.max}
        rule_text = f"min (by default the cidr's, {network.prefixlen}) must be at most max"
        yield f"{where}.prefixLength", value, rule_text
