"""All routes of this node: its own, the learned ones, and those announced to each peer.

Holds the table of learned paths, this node's own routes and the terms of import and export,
and keeps two results up to date: the best paths for felix, and the routes that each session
is offered. A change costs what it touches; changed terms cost one pass over all prefixes.

  RTG-1  After any change both results are what a fresh computation gives
         (hypothesis: tests/bgp/test_routing.py).
  RTG-2  felix is never told a way to another node for what this node announces as a
         service, or for a whole range of services: such packets are the node's own to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from bgp.routes import message_size
from bgp.routes.bestpath import Candidate
from bgp.routes.export_policy import Terms, offers, unreflected
from bgp.routes.import_policy import ImportPolicy
from bgp.routes.local_routes import Kind
from bgp.routes.rib import Rib
from bgp.speaker.interface import IPAddress, IPNetwork, Route

SHOWN = 20
"""Routes that are named one by one in conditions; `NAMED`: those of one condition."""
NAMED = 3
_TOGETHER = 1000
"""Changes that are published at once: a list of all would be as large as a table that goes."""


class BestPath(NamedTuple):
    """What felix is told of a prefix, all but the prefix: equal ones are one object.

    See `libcalico.local.node_api.Path` for the fields.
    """

    next_hops: tuple[str, ...]
    origin: str
    peer: str


Best = tuple[IPNetwork, BestPath | None]


class Routing:
    """The routing table; `publish` is called with the best paths that changed."""

    def __init__(
        self,
        current: Mapping[IPNetwork, BestPath],
        publish: Callable[[Iterable[Best]], None],
    ) -> None:
        self.intake = ImportPolicy()
        self.rib = Rib(self.intake.judge)
        self.own: dict[IPNetwork, Kind] = {}
        self.ranges: frozenset[IPNetwork] = frozenset()
        self.terms = Terms()
        self.offered: dict[IPNetwork, tuple[Route, ...]] = {}
        self.too_long: dict[IPNetwork, int] = {}
        """Prefixes that some session is not told, and how many octets an UPDATE would need."""
        self.unreflected: dict[IPNetwork, None] = {}
        """Routes of nodes that this reflector does not pass on, because no pool covers them."""
        self._current, self._publish = current, publish
        self._kept_here: frozenset[IPNetwork] = frozenset()
        self.fixed: dict[IPNetwork, BestPath] = {}
        """Ways that the operator named: felix gets them in the place of learned ones."""
        self._all: set[Route] = set()
        self._changed = False

    # -- what changes

    def have(self, own: dict[IPNetwork, Kind], ranges: frozenset[IPNetwork]) -> None:
        """This node's own routes, and the service ranges that no node routes to another."""
        old, self.own = self.own, own
        dirty = {net for net in old.keys() | own.keys() if old.get(net) is not own.get(net)}
        self.ranges = ranges
        kept = ranges | {net for net, kind in own.items() if kind is Kind.SERVICE}
        dirty |= kept ^ self._kept_here
        self._kept_here = kept
        self.choose(dirty)

    def fix(self, gateways: Mapping[IPNetwork, IPAddress]) -> None:
        """Ways that the operator named (`reachableBy`): destination -> next hop."""
        fixed = {net: BestPath((str(hop),), "external", str(hop)) for net, hop in gateways.items()}
        dirty = {
            net for net in fixed.keys() | self.fixed.keys() if fixed.get(net) != self.fixed.get(net)
        }
        self.fixed = fixed
        self.choose(dirty)

    def agree(self, terms: Terms) -> None:
        """The terms of export."""
        if terms != self.terms:
            self.terms = terms
            for prefix in self.offered.keys() | self.own.keys() | self.rib.prefixes():
                self._offer(prefix, self._best(prefix))

    def judge_again(self, prefixes: Iterable[IPNetwork] | None = None) -> None:
        """The terms of import changed, for these prefixes (None: all)."""
        self.choose(self.rib.judge_again(prefixes))

    def address(self, own: frozenset[IPAddress]) -> bool:
        """This node's addresses; returns whether they are new."""
        if own == self.rib.own:
            return False
        self.rib.own = own
        self.choose(self.rib.prefixes())
        return True

    def choose(self, prefixes: Iterable[IPNetwork]) -> None:
        """The choice for these prefixes may differ now."""
        changes: list[Best] = []
        for prefix in prefixes:
            best = self.rib.best(prefix)
            path = self.fixed.get(prefix)
            if path is None and prefix not in self._kept_here:
                path = best_path(best)
            if path != self._current.get(prefix):
                changes.append((prefix, path))
                if len(changes) == _TOGETHER:
                    self._publish(changes)
                    changes = []
            self._offer(prefix, best[0] if best else None)
        if changes:
            self._publish(changes)

    # -- what follows

    def _best(self, prefix: IPNetwork) -> Candidate | None:
        best = self.rib.best(prefix)
        return best[0] if best else None

    def _offer(self, prefix: IPNetwork, path: Candidate | None) -> None:
        own = self.own.get(prefix)
        routes = self._fitting(prefix, offers(prefix, own, path, self.terms))
        alone = None if routes or own is not None else path
        if alone is not None and unreflected(prefix, alone, self.terms):
            self.unreflected[prefix] = None
        else:
            self.unreflected.pop(prefix, None)
        before = self.offered.get(prefix, ())
        if routes == before:
            return
        if routes:
            self.offered[prefix] = routes
        else:
            del self.offered[prefix]
        self._all.difference_update(before)
        self._all.update(routes)
        self._changed = True

    def _fitting(self, prefix: IPNetwork, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        """The routes that an UPDATE can carry; the others are noted."""
        most = max(map(message_size.octets, routes), default=0)
        if most <= message_size.ROOM:
            self.too_long.pop(prefix, None)
            return routes
        self.too_long[prefix] = most
        return tuple(each for each in routes if message_size.octets(each) <= message_size.ROOM)

    def conditions(self) -> list[tuple[str, str]]:
        """Which routes are not told though they should be: (object, reason)."""
        reports = []
        if self.unreflected:
            names = ", ".join(map(str, islice(self.unreflected, NAMED)))
            more = len(self.unreflected) - NAMED
            names += f" and {more} more" if more > 0 else ""
            why = (
                f"{names}: no IPPool covers them, so they are not reflected; "
                "create the IPPool, or accept them by a BGPFilter (exportV4, exportV6)"
            )
            reports.append(("route reflector", why))
        return reports + [
            (
                f"route {prefix}",
                f"is not announced: its path and communities take {size} octets, "
                f"an UPDATE holds {message_size.ROOM} (RFC 4271 9.2)",
            )
            for prefix, size in islice(self.too_long.items(), SHOWN)
        ]

    def take_changed(self) -> bool:
        """Whether any offer changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def routes(self) -> frozenset[Route]:
        """Everything that is offered."""
        return frozenset(self._all)


def best_path(best: list[Candidate]) -> BestPath | None:
    """The best path of a prefix for felix: all equal next hops of one kind of origin."""
    if not best:
        return None
    first = best[0].source
    hops = frozenset(each.next_hop for each in used_together(best))
    return _best_path(hops, first.in_cluster, first.peer)


def used_together(best: list[Candidate]) -> list[Candidate]:
    """Those of the best paths that felix gets: of one kind of origin, that of the first."""
    return [each for each in best if each.source.in_cluster == best[0].source.in_cluster]


@lru_cache(maxsize=4096)
def _best_path(hops: frozenset[IPAddress], in_cluster: bool, peer: IPAddress) -> BestPath:
    return BestPath(
        next_hops=tuple(str(hop) for hop in sorted(hops, key=lambda hop: (hop.version, int(hop)))),
        origin="node" if in_cluster else "external",
        peer=str(peer),
    )
