"""The last decisions, on tmpfs: so that a restart works while the datastore is away.

A restarted agent asks the datastore first. If that does not answer, the peers would drop
our routes when the restart time ends, though nothing here has changed. So the last sessions
and announcements are kept in the run directory (it may hold keys: 0400, as ExaBGP's
configuration), and taken up again after a short wait. The datastore's word replaces them
as soon as it comes; sessions that are the same then do not notice. So do passwords and services,
which the Kubernetes API tells: it may be away where the datastore is not.

Tested in tests/bgp/test_memory.py and, with a dead etcd, in test_interop.py.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec

from bgp.peering.passwords import SecretRef
from bgp.peering.planned import PlannedPeer
from bgp.routes.offer import NextHop
from bgp.speaker.interface import Family, IPNetwork, Origin, Peer, Route
from libcalico.errors import NO_DOCUMENT
from libcalico.model.resources.bgpfilter import BGPFilterSpec

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""How long a start waits for the datastore before it remembers, in seconds."""

_LISTS = ("communities", "large_communities", "as_path", "extended_communities", "cluster_list")


@dataclass
class Last:
    """The last decisions: sessions, this node's own routes, the BGPFilters of the sessions.

    And what they were made of that others tell than the datastore: `services` are the single
    addresses that were announced, `secrets` the passwords.
    """

    peers: list[PlannedPeer] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    filters: dict[str, BGPFilterSpec] = field(default_factory=dict)
    services: frozenset[IPNetwork] = frozenset()
    secrets: dict[SecretRef, str] = field(default_factory=dict, repr=False)


class Memory:
    """A file with the last decisions; `path` None remembers nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last = b""

    def save(self, last: Last) -> None:
        """Write what was decided, if it is new. A failure is logged: the work goes on."""
        if self._path is None:
            return
        text = encode(last)
        if text == self._last:
            return
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)
            # Opened as it is made: a root without CAP_DAC_OVERRIDE may not open 0400 to write.
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
            fresh.rename(self._path)
            self._last = text
        except OSError as error:
            log.warning("the last decisions cannot be kept: %s", error)

    def load(self) -> Last | None:
        """What was decided last; None if there is nothing, or nothing readable."""
        if self._path is None or not self._path.exists():
            return None
        try:
            return decode(self._path.read_bytes())
        except (*NO_DOCUMENT, OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the last decisions cannot be read: %s", error)
            return None


def encode(last: Last) -> bytes:
    """The decisions as JSON; equal ones give equal bytes."""
    ordered = sorted(last.routes, key=lambda route: (route.prefix.version, str(route)))
    tree = {
        "peers": last.peers,
        "routes": ordered,
        "filters": last.filters,
        "services": sorted(map(str, last.services)),
        "secrets": sorted([*ref, value] for ref, value in last.secrets.items()),
    }
    return msgspec.json.encode(tree, enc_hook=str, order="sorted")


def decode(raw: bytes) -> Last:
    """The inverse of `encode`. Raises what broken input causes."""
    tree = msgspec.json.decode(raw)
    return Last(
        [_planned(each) for each in tree["peers"]],
        [_route(each) for each in tree["routes"]],
        msgspec.convert(tree["filters"], dict[str, BGPFilterSpec]),
        frozenset(map(ip_network, tree.get("services", ()))),
        {SecretRef(name, key): value for name, key, value in tree.get("secrets", ())},
    )


def _planned(tree: dict[str, Any]) -> PlannedPeer:
    peer = dict(tree["peer"])
    for name in ("address", "local_address"):
        peer[name] = ip_address(peer[name])
    peer["router_id"] = IPv4Address(peer["router_id"])
    peer["families"] = tuple(Family(name) for name in peer["families"])
    values = {**tree, "peer": Peer(**peer), "filters": tuple(tree["filters"])}
    values["next_hop"] = NextHop(tree["next_hop"])
    if values["reachable_by"] is not None:
        values["reachable_by"] = ip_address(values["reachable_by"])
    return PlannedPeer(**values)


def _route(tree: dict[str, Any]) -> Route:
    values = {**tree, "prefix": ip_network(tree["prefix"])}
    if values["next_hop"] is not None:
        values["next_hop"] = ip_address(values["next_hop"])
    if values["peers"] is not None:
        values["peers"] = frozenset(ip_address(each) for each in values["peers"])
    for name in _LISTS:
        values[name] = tuple(values[name])
    values["origin"] = Origin(values["origin"])
    if values["originator_id"] is not None:
        values["originator_id"] = IPv4Address(values["originator_id"])
    return Route(**values)
