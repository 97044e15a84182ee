"""What each session is told of a prefix: the export side. Pure.

Sessions that are told alike form an *audience*, so that a mesh of hundreds costs one
decision for a prefix. Per audience, as in Calico (docs/reference/dataplane.md#export): the
peering's BGPFilters first; where none decides, nothing of a pool with `disableBGPExport`, then own
blocks, addresses and services, then a reflector's service ranges, then all routes in a pool:
a disabled one too, whose pods keep their addresses. An own address needs no pool: a pool may be
removed before its last pods (Calico then withdraws them). A route that this node has itself is
told instead of any learned path to its prefix.

  OFF-1  One route for each prefix and peer at most.
  OFF-2  Nothing is told to the peer it came from.
  OFF-3  While the node drains, every route says so (RFC 8326): GRACEFUL_SHUTDOWN, and
         LOCAL_PREF 0 inside the AS.
  OFF-4  A session that is to take over hears nothing at second hand of those that are about
         to end: it would hold our word for the best path and keep its own from us. A path that we
         reflect is told: its CLUSTER_LIST makes it the last choice of a node that has its own.
  OFF-5  A router on a network of ours hears of a path learned inside the AS only where its next
         hop is on a network of ours too, or packets go in a tunnel: we would hand them back to
         that very router. A router that lost the owner's session takes all second-hand paths as
         equal, and those of other racks would loop.
Tested in tests/bgp/test_export_policy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bgp.cluster.view import PoolView
from bgp.routes import filters, reflection
from bgp.routes.audiences import Audience, Manner, NextHop
from bgp.routes.bestpath import Candidate, local_pref
from bgp.routes.communities import Tags
from bgp.routes.filters import Rules, Subject
from bgp.routes.import_policy import GRACEFUL_SHUTDOWN
from bgp.routes.local_routes import Kind
from bgp.routes.prefix_search import lies_in
from bgp.speaker.interface import Family, IPAddress, IPNetwork, Route

SECOND_HAND_MED = 100
"""MED of a path that a node learned inside the AS and tells an external peer: a router that
hears all nodes then takes the node that has the block (RFC 4271 9.1.2.2 c)."""


def _unknown(what: IPAddress | IPNetwork) -> str:
    return ""


@dataclass(frozen=True)
class Terms:
    """The inputs of export besides the routes.

    `leaving`: sessions that end soon; `successors`: those that take over from them
    (`bgp.decide.make_before_break`). `cluster_id`: ours, if we reflect. `services`: ranges inside
    which a reflector passes on addresses. `priorities`: the normal priority by IP version where
    LOCAL_PREF shall carry it. `interface`: where packets to an address leave, or a network
    of ours lies.
    """

    audiences: tuple[Audience, ...] = ()
    pools: tuple[PoolView, ...] = ()
    filters: Mapping[str, Rules] = field(default_factory=dict)
    tags: Tags = field(default_factory=Tags)
    cluster_id: str = ""
    services: tuple[IPNetwork, ...] = ()
    priorities: Mapping[int, int] = field(default_factory=dict)
    draining: bool = False
    leaving: frozenset[IPAddress] = frozenset()
    successors: frozenset[IPAddress] = frozenset()
    interface: Callable[[IPAddress | IPNetwork], str] = _unknown


def offers(
    prefix: IPNetwork, own: Kind | None, path: Candidate | None, terms: Terms
) -> tuple[Route, ...]:
    """The routes that tell of a prefix: our own (`own`), else the best learned one (`path`)."""
    if own is None and path is None:
        return ()
    family = Family.of(prefix)
    groups: dict[Route, frozenset[IPAddress]] = {}
    for audience in terms.audiences:
        if family not in audience.manner.families:
            continue
        peers = audience.peers
        if own is None and path is not None:
            peers -= {path.source.peer}  # OFF-2
            reflected = path.source.internal and audience.manner.internal
            if path.source.peer in terms.leaving and not reflected:
                peers -= terms.successors  # OFF-4
        if peers:
            route = _told(prefix, own, path, audience.manner, terms)
            if own is None and path is not None and route is not None and route.next_hop is None:
                peers = _not_back(prefix, path, audience.manner, peers, terms)
            if route is not None and peers:
                groups[route] = groups.get(route, frozenset()) | peers
    return tuple(replace(route, peers=peers) for route, peers in groups.items())


def _not_back(
    prefix: IPNetwork,
    path: Candidate,
    manner: Manner,
    peers: frozenset[IPAddress],
    terms: Terms,
) -> frozenset[IPAddress]:
    """Those peers to which a path with us as next hop does not lead in a circle (OFF-5)."""
    if manner.internal or not path.source.internal or terms.interface(path.next_hop):
        return peers
    if any(pool.tunnelled and lies_in(prefix, pool.cidr) for pool in terms.pools):
        return peers
    return frozenset(peer for peer in peers if not terms.interface(peer))


def _told(
    prefix: IPNetwork, own: Kind | None, path: Candidate | None, manner: Manner, terms: Terms
) -> Route | None:
    """The route that a session of this manner gets; None: none."""
    learned = path if own is None else None
    reflects = bool(terms.cluster_id)
    if learned is not None and not reflection.passes(
        learned, internal=manner.internal, client=manner.client, reflects=reflects
    ):
        return None
    rules = [terms.filters.get(name) for name in manner.filters]
    known = [each for each in rules if each is not None]
    if len(known) < len(rules):
        return None
    subject = _subject(prefix, own, learned, manner, terms)
    verdict = filters.run(known, filters.EXPORT, subject)
    after = verdict.subject
    if verdict.accepted is None:
        if not _by_default(prefix, own, terms):
            return None
        after = after.tagged(terms.tags.of(prefix))
    elif not verdict.accepted:
        return None
    if terms.draining:
        after = after.tagged([GRACEFUL_SHUTDOWN])
    route = Route(
        prefix,
        local_pref=_local_pref(after, learned, manner, terms),
        communities=after.communities,
        large_communities=after.large_communities,
        as_path=after.prepended + after.as_path,
    )
    return route if learned is None else _second_hand(route, learned, manner, terms)


def _subject(
    prefix: IPNetwork, own: Kind | None, path: Candidate | None, manner: Manner, terms: Terms
) -> Subject:
    normal = terms.priorities.get(prefix.version, filters.NORMAL_PRIORITY)
    if path is None:
        interface = terms.interface(prefix) if own in (Kind.HOST, Kind.CONNECTED) else ""
        return Subject(prefix, manner.internal, False, interface, priority=normal)
    attributes = path.attributes
    return Subject(
        prefix,
        manner.internal,
        True,
        terms.interface(path.next_hop),
        as_path=attributes.as_path,
        communities=attributes.communities,
        large_communities=attributes.large_communities,
        priority=filters.priority_of(local_pref(path)),
    )


def _by_default(prefix: IPNetwork, own: Kind | None, terms: Terms) -> bool:
    if any(not pool.exported and lies_in(prefix, pool.cidr) for pool in terms.pools):
        return False
    if own in (Kind.BLOCK, Kind.HOST, Kind.SERVICE):
        return True
    if terms.cluster_id and any(lies_in(prefix, network) for network in terms.services):
        return True
    return any(lies_in(prefix, pool.cidr) for pool in terms.pools)


def unreflected(prefix: IPNetwork, path: Candidate, terms: Terms) -> bool:
    """Whether a reflector keeps a node's path to itself only because no pool covers it.

    An operator sets `disableBGPExport` of a pool on purpose; a filter may still let it through.
    """
    if not terms.cluster_id or not path.source.in_cluster or _by_default(prefix, None, terms):
        return False
    return not any(not pool.exported and lies_in(prefix, pool.cidr) for pool in terms.pools)


def _local_pref(
    subject: Subject, path: Candidate | None, manner: Manner, terms: Terms
) -> int | None:
    if not manner.internal:
        return None
    if terms.draining:
        return 0
    if subject.priority_set:
        return filters.local_pref_of(subject.priority)
    if path is not None:
        return local_pref(path)
    normal = terms.priorities.get(subject.prefix.version)
    return None if normal is None else filters.local_pref_of(normal)


def _second_hand(route: Route, path: Candidate, manner: Manner, terms: Terms) -> Route:
    """A learned path: its attributes that travel, and whose next hop it has."""
    attributes = path.attributes
    keeps = manner.next_hop in (NextHop.KEEP, NextHop.KEEP_EXTERNAL) or (
        manner.next_hop is NextHop.AUTO and manner.internal
    )
    route = replace(
        route,
        next_hop=path.next_hop if keeps else None,
        origin=attributes.origin,
        extended_communities=attributes.extended_communities,
    )
    if not manner.internal:
        return replace(route, med=SECOND_HAND_MED if path.source.internal else None)
    route = replace(route, med=attributes.med)
    if path.source.internal:
        originator, clusters = reflection.marks(path, terms.cluster_id)
        route = replace(route, originator_id=originator, cluster_list=clusters)
    return route
