"""What a BGPPeer asks of its sessions: its fields, checked and parsed. Pure.

Tested in tests/bgp/test_peering.py and test_peer_settings.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from bgp.cluster.view import ClusterView
from bgp.peering.passwords import SecretRef
from bgp.peering.planned import Local
from bgp.routes import filters as bgp_filters
from bgp.routes.audiences import NextHop
from bgp.speaker.interface import (
    BGP_PORT,
    DEFAULT_RESTART_TIME,
    IPAddress,
)
from libcalico import durations
from libcalico.errors import MuslinError
from libcalico.host_address import A_HOST, is_host
from libcalico.model.resources.bgp import BGPPassword, BGPPeerSpec


class NotHeld(MuslinError):
    """The reason of a refusal."""


@dataclass(frozen=True, slots=True)
class PeerTerms:
    """The settings of a peering's sessions."""

    restart_time: int = DEFAULT_RESTART_TIME
    keepalive: int = 0
    password: str = ""
    local_as: int | None = None
    ttl_security: int = 0
    allowed_local_as: int = 0
    any_source: bool = False
    filters: tuple[str, ...] = ()
    next_hop: NextHop = NextHop.AUTO
    reachable_by: IPAddress | None = None


def terms_of(view: ClusterView, local: Local, spec: BGPPeerSpec) -> PeerTerms:
    """The settings of a BGPPeer. Raises `NotHeld` or `ValueError` for a wrong one (BGP-6)."""
    if spec.ttlSecurity and not 0 < spec.ttlSecurity < 255:
        raise NotHeld(f"spec.ttlSecurity: {spec.ttlSecurity} is not valid: 1 to 254 hops")
    for name in spec.filters:
        if name not in view.filters:
            raise NotHeld(f"spec.filters: there is no BGPFilter {name!r}")
        bgp_filters.compiled(name, view.filters[name])
    if spec.numAllowedLocalASNumbers is not None and spec.numAllowedLocalASNumbers < 0:
        value = spec.numAllowedLocalASNumbers  # it would refuse every path
        raise NotHeld(f"spec.numAllowedLocalASNumbers: {value} is not valid: 0 or more")
    keepalive = seconds("keepaliveTime", spec.keepaliveTime, 0)
    return PeerTerms(
        restart_time=seconds("maxRestartTime", spec.maxRestartTime, DEFAULT_RESTART_TIME),
        keepalive=keepalive,
        password=password_of("spec.password", spec.password, local),
        local_as=spec.localASNumber,
        ttl_security=spec.ttlSecurity or 0,
        allowed_local_as=spec.numAllowedLocalASNumbers or 0,
        any_source=spec.sourceAddress == "None",
        filters=tuple(spec.filters),
        next_hop=_next_hop(spec),
        reachable_by=_reachable_by(spec),
    )


def _next_hop(spec: BGPPeerSpec) -> NextHop:
    if spec.keepOriginalNextHop and not spec.nextHopMode:
        return NextHop.KEEP_EXTERNAL
    try:
        return NextHop(spec.nextHopMode or "Auto")
    except ValueError:
        rule = "Auto, Self or Keep"
        raise NotHeld(f"spec.nextHopMode: {spec.nextHopMode!r} is not valid: {rule}") from None


def _reachable_by(spec: BGPPeerSpec) -> IPAddress | None:
    if not spec.reachableBy:
        return None
    gateway = ip_address(spec.reachableBy)
    if gateway.version != parse_peer_ip(spec.peerIP)[0].version:
        raise NotHeld(f"spec.reachableBy: {gateway} is not valid: must be of the peer's family")
    if not is_host(gateway):
        raise NotHeld(f"spec.reachableBy: {gateway} is not valid: must be {A_HOST}")
    return gateway


def password_of(field: str, reference: BGPPassword | None, local: Local) -> str:
    """The password that a reference names; empty where there is none."""
    if reference is None:
        return ""
    if reference.secretKeyRef is None:
        raise NotHeld(f"{field}: names no secretKeyRef")
    ref = SecretRef(reference.secretKeyRef.name, reference.secretKeyRef.key)
    local.secrets.add(ref)
    if reference.secretKeyRef.optional and ref not in local.passwords.values:
        return ""
    try:
        return local.passwords.get(ref)
    except ValueError as error:
        raise NotHeld(f"{field}: {error}") from error


def parse_peer_ip(text: str) -> tuple[IPAddress, int]:
    """`ip`, `ip:port` or `[ipv6]:port` as address and port. Raises `ValueError`."""
    match = re.fullmatch(r"\[(.+)\]:(\d+)|([^:]+):(\d+)", text.strip())
    host, port = (match[1] or match[3], int(match[2] or match[4])) if match else (text, BGP_PORT)
    try:
        address = ip_address(host.strip())
    except ValueError:
        rule = "ip, ip:port or [ipv6]:port"
        raise ValueError(f"spec.peerIP: {text!r} is not valid: {rule}") from None
    if address.is_unspecified or address.is_multicast or "%" in str(address):
        # With a zone (fe80::1%eth0) ExaBGP would refuse the whole configuration.
        raise ValueError(f"spec.peerIP: {text!r} is not valid: a host's address without a zone")
    if not 0 < port < 65536:
        raise ValueError(f"spec.peerIP: {text!r} is not valid: a port is 1 to 65535")
    return address, port


def seconds(field: str, text: str | None, default: int) -> int:
    """A Go duration in whole seconds, at least 1. Raises `ValueError`."""
    if not text:
        return default
    try:
        return max(1, int(durations.parse(text)))
    except ValueError as error:
        raise ValueError(f"{field}: {text!r} is not valid: {error}") from None
