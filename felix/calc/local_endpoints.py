"""The workload endpoints of this node: stored ones, offered ones, retracted ones, and whose
interface is whose.

`cni` offers an endpoint in parallel with storing it, so that routes and rules are under way while
the store still writes; and it retracts one that it deletes, possibly before the watch says so.
Which of the two counts is decided in `felix.calc.standing`, of each endpoint by itself.

Invariants:
  EPT-1  The watch event of an endpoint that was offered with equal bytes changes nothing.
  EPT-3  An interface belongs to one endpoint; of several claimants the smallest name has it,
         and the others are named, not served.
  EPT-4  An endpoint that names an interface without our prefix (the node's own `eth0`, say) is
         named, not served: felix never changes a link that is no workload's.
Tested in tests/felix/calc/test_endpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from felix.calc.endpoints import Endpoint, from_resource
from felix.calc.standing import Standing
from libcalico.model import ResourceKey, WorkloadEndpoint

BYGONE = 1000
"""Endpoints that are gone and of which late words may come: of so many is that remembered."""


class LocalEndpoints:
    """Stored, offered and retracted endpoints of one node, merged.

    `changed` is called for every endpoint whose result differs, for any cause.
    """

    def __init__(
        self, changed: Callable[[ResourceKey, Endpoint | None], object] = lambda key, endpoint: None
    ) -> None:
        self._changed = changed
        self.unreleased: frozenset[str] = frozenset()
        """Containers whose release waits in cni's journal."""
        self._standings: dict[ResourceKey, Standing] = {}
        self._bygone: dict[ResourceKey, None] = {}
        self._read: dict[ResourceKey, tuple[bytes, WorkloadEndpoint, Endpoint]] = {}
        self._claims: dict[str, dict[ResourceKey, Endpoint]] = {}
        self._active: tuple[dict[str, Endpoint], dict[ResourceKey, str]] = ({}, {})
        self._prefixes: tuple[str, ...] = ("",)
        self._unjudged: set[str] = set()
        self._moved: set[str] = set()
        self._vanished: dict[ResourceKey, str] = {}

    def store(self, key: ResourceKey, endpoint: Endpoint | None, revision: int) -> bool:
        """Store the endpoint as of `revision`; None: it was deleted.

        Returns whether the result changed.
        """
        standing = self._standing(key)
        before = standing.now
        standing.tell(endpoint, revision)
        return self._settle(key, standing, before)

    def remember(self, raw: bytes, value: WorkloadEndpoint, endpoint: Endpoint) -> None:
        """The offered endpoint, as it was read: the datastore will hold the same bytes (EPT-1)."""
        self._read[endpoint.key] = raw, value, endpoint

    @property
    def remembers(self) -> bool:
        """Whether anything offered waits for the store's word."""
        return bool(self._read)

    def remembered(self, key: ResourceKey, raw: bytes) -> WorkloadEndpoint | None:
        """The object of these bytes, if they were read when they were offered."""
        known = self._read.get(key)
        return known[1] if known is not None and known[0] == raw else None

    def read(self, key: ResourceKey, value: WorkloadEndpoint) -> Endpoint:
        """As `from_resource`; what was read when it was offered is not read again."""
        known = self._read.pop(key, None)
        return known[2] if known is not None and known[1] is value else from_resource(key, value)

    def offer(self, endpoint: Endpoint) -> bool:
        """`cni` is about to store it. Returns whether the result changed."""
        standing = self._standing(endpoint.key)
        before = standing.now
        standing.offer(endpoint)
        return self._settle(endpoint.key, standing, before)

    def settle(self, key: ResourceKey, container_id: str, revision: int) -> bool:
        """What this container's ADD offered is stored since `revision`; 0: that is not known.

        Returns whether the result changed.
        """
        standing = self._standing(key)
        before = standing.now
        standing.settle(container_id, revision)
        return self._settle(key, standing, before)

    def retract(self, key: ResourceKey, container_id: str) -> bool:
        """Retract this container's endpoint. Returns whether the result changed."""
        self._read.pop(key, None)
        standing = self._standing(key)
        before = standing.now
        standing.retract(container_id)
        changed = self._settle(key, standing, before)
        if self._vanished.get(key) == container_id:
            del self._vanished[key]
        return changed

    def abandon(self, offered: Endpoint) -> bool | None:
        """Who made this offer (this very object) is gone, and did not say that it was stored.

        Returns whether the datastore names its container all the same; None: the offer did not
        count any more.
        """
        key = offered.key
        standing = self._standing(key)
        before = standing.now
        stored = standing.abandon(offered)
        if stored is not None:
            self._read.pop(key, None)
        self._settle(key, standing, before)
        return stored

    def overrule(self, key: ResourceKey) -> bool:
        """An offer that was never said to be stored ends, where the datastore has named its
        container. Returns whether there was one.
        """
        standing = self._standing(key)
        before = standing.now
        done = standing.overrule()
        self._settle(key, standing, before)
        return done

    def listing_begins(self) -> None:
        """Begin a listing of the datastore."""
        for standing in self._standings.values():
            standing.listing_begins()

    def listing_ended(self) -> bool:
        """End the listing. Returns whether a result changed."""
        changed = False
        for key, standing in list(self._standings.items()):
            before = standing.now
            standing.listing_ended()
            changed |= self._settle(key, standing, before)
        return changed

    def standings(self) -> Iterator[tuple[ResourceKey, Standing]]:
        """What was said of each endpoint."""
        return iter(self._standings.items())

    def _standing(self, key: ResourceKey) -> Standing:
        standing = self._standings.get(key)
        if standing is None:
            standing = self._standings[key] = Standing()
        return standing

    def _settle(self, key: ResourceKey, standing: Standing, before: Endpoint | None) -> bool:
        now = standing.now
        self._keep(key, standing)
        if standing.offered is None:
            self._read.pop(key, None)
        if now == before:
            return False
        if before is not None and now is None and before.container_id not in self.unreleased:
            self._vanished[key] = before.container_id
        if before is not None:
            claimants = self._claims[before.interface]
            del claimants[key]
            if not claimants:
                del self._claims[before.interface]
            self._unjudged.add(before.interface)
        if now is not None:
            self._claims.setdefault(now.interface, {})[key] = now
            self._unjudged.add(now.interface)
        self._changed(key, now)
        return True

    def _keep(self, key: ResourceKey, standing: Standing) -> None:
        """Remember what still matters; of what is gone that of a limited number."""
        self._bygone.pop(key, None)
        if standing.empty:
            del self._standings[key]
        elif standing.bygone:
            self._bygone[key] = None
            if len(self._bygone) > BYGONE:
                oldest = next(iter(self._bygone))
                del self._bygone[oldest], self._standings[oldest]

    def get(self, key: ResourceKey) -> Endpoint | None:
        """The endpoint as it should be now."""
        standing = self._standings.get(key)
        return standing.now if standing is not None else None

    def active(
        self, prefixes: tuple[str, ...] = ("",)
    ) -> tuple[dict[str, Endpoint], dict[ResourceKey, str]]:
        """Endpoints by interface, and why each of the others is not served (EPT-3, EPT-4).

        Only interfaces that begin with one of `prefixes` are workloads'. The same objects as
        last time where nothing changed since; what changed is told by `take_moved`.
        """
        if self._prefixes != prefixes:
            self._prefixes = prefixes
            self._unjudged |= self._claims.keys() | self._active[0].keys()
        if self._unjudged:
            winners, shadowed = dict(self._active[0]), dict(self._active[1])
            for interface in self._unjudged:
                self._judge(interface, winners, shadowed)
            gone = [key for key in shadowed if self.get(key) is None]
            for key in gone:
                del shadowed[key]
            self._moved |= self._unjudged
            self._unjudged = set()
            self._active = winners, shadowed
        return self._active

    def awaits(self, interface: str) -> bool:
        """Whether this interface changed since the last call of `active`."""
        return interface in self._unjudged

    def take_moved(self) -> set[str]:
        """The interfaces whose endpoints may have changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def take_vanished(self) -> dict[ResourceKey, str]:
        """Containers of endpoints that went since the last call and that `cni` did not retract."""
        vanished, self._vanished = self._vanished, {}
        return vanished

    def _judge(
        self, interface: str, winners: dict[str, Endpoint], shadowed: dict[ResourceKey, str]
    ) -> None:
        claims = self._claims.get(interface, {})
        winners.pop(interface, None)
        for key in claims:
            shadowed.pop(key, None)
        if claims and not interface.startswith(self._prefixes):
            reason = f"interface {interface} does not begin with {' or '.join(self._prefixes)}"
            shadowed.update(dict.fromkeys(claims, reason))
        elif claims:
            first, *others = sorted(claims.values(), key=lambda e: (e.identity, e.key))
            winners[interface] = first
            for other in others:
                shadowed[other.key] = f"interface {interface} belongs to {first.key}"
