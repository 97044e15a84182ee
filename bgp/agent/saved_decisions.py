"""The last decisions, on tmpfs: so that a restart works while the datastore is away.

A restarted agent asks the datastore first. If that does not answer, the peers would drop
our routes when the restart time ends, though nothing here has changed. So the last sessions,
own routes and terms of export are kept in the run directory (it may hold keys: 0400, as ExaBGP's
configuration), and taken up again after a short wait. The datastore's word replaces them
as soon as it comes; sessions that are the same then do not notice. So do passwords and services,
which the Kubernetes API tells: it may be away where the datastore is not.

Tested in tests/bgp/test_saved_decisions.py and, with a dead etcd, in test_interop.py.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec

from bgp.cluster.view import PoolView
from bgp.decide.decision_state import DecisionState
from bgp.decide.routing import Routing
from bgp.peering import reflectors
from bgp.peering.passwords import SecretRef
from bgp.peering.peering import Plan
from bgp.peering.planned import PlannedPeer
from bgp.routes.audiences import NextHop
from bgp.routes.communities import Tags
from bgp.routes.export_policy import Terms
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import Family, IPAddress, IPNetwork, Peer
from libcalico.errors import NO_DOCUMENT
from libcalico.model.resources.bgpfilter import BGPFilterSpec

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""How long a start waits for the datastore before it remembers, in seconds."""


@dataclass
class LastDecisions:
    """The last decisions: sessions, own routes, terms of export, the BGPFilters of the sessions.

    `ranges` are the service ranges that no node routes to another; of the terms only what the
    datastore tells is kept. And what all this was made of that others tell: `services` are the
    single addresses that were announced, `secrets` the passwords, `borrowed` the addresses that
    felix named, by block. `reflectors` are the nodes that reflect, with their cluster ids,
    `fresh` those that do only since a moment ago.
    """

    peers: list[PlannedPeer] = field(default_factory=list)
    own: dict[IPNetwork, Kind] = field(default_factory=dict)
    ranges: frozenset[IPNetwork] = frozenset()
    terms: Terms = field(default_factory=Terms)
    filters: dict[str, BGPFilterSpec] = field(default_factory=dict)
    services: frozenset[IPNetwork] = frozenset()
    secrets: dict[SecretRef, str] = field(default_factory=dict, repr=False)
    local_as: int = 0
    borrowed: dict[IPNetwork, dict[IPAddress, str]] = field(default_factory=dict)
    reflectors: dict[str, str] | None = None
    fresh: frozenset[str] = frozenset()


def decided(state: DecisionState, routing: Routing, plan: Plan) -> LastDecisions:
    """The present decisions."""
    known = state.known_passwords.values
    return LastDecisions(
        peers=list(plan.peers),
        own=routing.own,
        ranges=routing.ranges,
        terms=routing.terms,
        filters=state.filters_of(plan.peers),
        services=state.service_addresses,
        secrets={ref: value for ref, value in known.items() if ref in plan.secrets},
        local_as=plan.local_as,
        borrowed=dict(state.view.ownership.lent),
        reflectors=reflectors.cluster_ids(state.view),
        fresh=frozenset(state.view.fresh),
    )


class SavedDecisions:
    """A file with the last decisions; `path` None remembers nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last = b""

    def save(self, last: LastDecisions) -> None:
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

    @cached_property
    def before(self) -> LastDecisions:
        """The decisions of before the start; empty if they cannot be read."""
        return self.load() or LastDecisions()

    def load(self) -> LastDecisions | None:
        """The saved decisions; None if there are none that can be read."""
        if self._path is None or not self._path.exists():
            return None
        try:
            return decode(self._path.read_bytes())
        except (*NO_DOCUMENT, OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the last decisions cannot be read: %s", error)
            return None


def encode(last: LastDecisions) -> bytes:
    """The decisions as JSON; equal ones give equal bytes.

    An older program refuses a peer with a member that it does not know: new ones are kept apart.
    """
    terms = last.terms
    peers = [msgspec.to_builtins(each, enc_hook=str) for each in last.peers]
    tree = {
        "peers": peers,
        "joins": [each.pop("joins") for each in peers],
        "own": {str(net): kind for net, kind in last.own.items()},
        "ranges": sorted(map(str, last.ranges)),
        "terms": {
            "pools": terms.pools,
            "tags": terms.tags,
            "cluster_id": terms.cluster_id,
            "services": terms.services,
            "priorities": {str(version): value for version, value in terms.priorities.items()},
            "draining": terms.draining,
        },
        "local_as": last.local_as,
        "filters": last.filters,
        "services": sorted(map(str, last.services)),
        "borrowed": {
            str(block): {str(address): node for address, node in users.items()}
            for block, users in last.borrowed.items()
        },
        "reflectors": last.reflectors,
        "fresh": sorted(last.fresh),
        "secrets": sorted([*ref, value] for ref, value in last.secrets.items()),
    }
    return msgspec.json.encode(tree, enc_hook=str, order="sorted")


def decode(raw: bytes) -> LastDecisions:
    """The inverse of `encode`. Raises what broken input causes."""
    tree = msgspec.json.decode(raw)
    peers = [_planned(each) for each in tree["peers"]]
    joins = tree.get("joins", [each.joins for each in peers])
    return LastDecisions(
        [replace(each, joins=joined) for each, joined in zip(peers, joins, strict=True)],
        {ip_network(text): Kind(kind) for text, kind in tree["own"].items()},
        frozenset(map(ip_network, tree["ranges"])),
        _terms(tree["terms"]),
        msgspec.convert(tree["filters"], dict[str, BGPFilterSpec]),
        frozenset(map(ip_network, tree.get("services", ()))),
        {SecretRef(name, key): value for name, key, value in tree.get("secrets", ())},
        tree["local_as"],
        {
            ip_network(block): {ip_address(address): node for address, node in users.items()}
            for block, users in tree.get("borrowed", {}).items()
        },
        tree.get("reflectors"),
        frozenset(tree.get("fresh", ())),
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


def _terms(tree: dict[str, Any]) -> Terms:
    tags = tree["tags"]
    entries = tuple((ip_network(cidr), tuple(values)) for cidr, values in tags["entries"])
    pools = [PoolView(**{**each, "cidr": ip_network(each["cidr"])}) for each in tree["pools"]]
    return Terms(
        pools=tuple(pools),
        tags=Tags(entries, tuple(tags["problems"])),
        cluster_id=tree["cluster_id"],
        services=tuple(map(ip_network, tree["services"])),
        priorities={int(version): value for version, value in tree["priorities"].items()},
        draining=tree["draining"],
    )
