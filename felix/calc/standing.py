"""Whose word counts about one endpoint: what `cni` offered, or what the datastore tells.

The problem: `cni` offers an endpoint while it is being stored, and takes one back before the
datastore says so. What the datastore tells arrives later, may be of before the offer (of an
earlier sandbox or attempt), and does not look the same in both datastores: etcd holds the bytes
that were offered, Kubernetes makes the endpoint of the Pod, under the Pod's own uid and with the
addresses that the kubelet reported last. So content cannot tell which of the two is newer. The
order of the datastore can: after its commit `cni` names the revision that stored the offer, and
each word of the datastore has its own. Only this file decides that, and it is pure.

Invariants:
  STD-1  An offer ends with the first word of the datastore, of any content, that is as new as the
         revision under which it was stored, and with no older one.
  STD-2  Before its revision is known an offer ends only by the very object that was offered (its
         uid and all of its content), by its retraction, or when its maker is gone.
  STD-3  Of a word that names the offered container with the addresses of the sandbox before (the
         kubelet has not reported the new ones) everything counts but these addresses.
  STD-4  What is older than the last offer that was stored is never shown again.
  STD-5  A container that was taken away is not shown, however late the datastore names it, until
         it is offered again. One that a complete listing does not name is forgotten.
  STD-6  A complete listing that was begun after an offer was stored ends the offer, but for what
         STD-3 says: revisions of a store that was set up anew are not compared with the old one's.
Tested in tests/felix/calc/test_standing.py.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from felix.calc.endpoints import Endpoint, IPNetwork

    Networks = frozenset[IPNetwork]

KEPT = 8
"""So many sandboxes of one endpoint are remembered that were offered or taken away."""
NEWEST = sys.maxsize
"""The revision of a word that is certainly the last one."""

T = TypeVar("T")


def _remember(last: dict[T, None], one: T) -> None:
    last.pop(one, None)
    last[one] = None
    if len(last) > KEPT:
        del last[next(iter(last))]


class Standing:
    """What was said of one endpoint, and what follows: `now`, None where there is none."""

    __slots__ = (
        "_dead",
        "_detached",
        "_floor",
        "_former",
        "_given",
        "_guess",
        "_listed",
        "_listed_dead",
        "_listing",
        "_since",
        "now",
        "offered",
        "revision",
        "stored",
    )

    def __init__(self) -> None:
        self.now: Endpoint | None = None
        self.stored: Endpoint | None = None
        """The datastore's last word; None also where it has not spoken yet."""
        self.revision = -1
        """Of that word; -1: it has not spoken yet."""
        self.offered: Endpoint | None = None
        """What was offered, while that still counts."""
        self._since: int | None = None
        """The revision that stored the offer; None: not known yet."""
        self._former: Networks | None = None
        """Addresses that the datastore told of the sandbox before the offered one; None: it has
        told of none."""
        self._guess: Networks | None = None
        """Addresses that are taken for these where it has not."""
        self._floor = 0
        """Words older than this are of before the last offer that was stored."""
        self._given: dict[Networks, None] = {}
        """Addresses of the last sandboxes that were offered. Of one of them the datastore may never
        have told, as while a watch was broken, and the kubelet reported it all the same."""
        self._dead: dict[str, None] = {}
        """Containers that were taken away, and that the datastore may still name."""
        self._detached = False
        """Whether no other container came since the last one was taken away."""
        self._listing = False
        self._listed: Endpoint | None = None
        """While a listing runs: the offer that it ends."""
        self._listed_dead: tuple[str, ...] = ()
        """While a listing runs: the containers that it lets be forgotten."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remember."""
        return self.bygone and not self._dead and not self._given

    @property
    def bygone(self) -> bool:
        """Whether only containers are remembered that the datastore may still name."""
        return self.stored is None and self.offered is None and not self._floor

    @property
    def unstored(self) -> bool:
        """Whether an offer counts of which it is not known that it was stored."""
        return self.offered is not None and self._since is None

    @property
    def difference(self) -> str:
        """How what counts is not the datastore's last word; empty where it is."""
        if self.unstored:
            return "offered by cni, which has not said that it is stored"
        if self.offered is not None and not self._is_new(self.revision):
            return f"stored by cni at revision {self._since}, of which the datastore does not tell"
        if self.offered is not None:
            return "the datastore has the addresses of its sandbox before"
        if self.stored is not None and self.stored.container_id in self._dead:
            return "taken away by cni, and still stored"
        if self.revision < self._floor:
            return f"the datastore does not tell of its revision {self._floor}"
        return ""

    def overrule(self) -> bool:
        """End an offer whose container the datastore names; returns whether there was one."""
        offered, stored = self.offered, self.stored
        if not self.unstored or stored is None or offered is None:
            return False
        if stored.container_id != offered.container_id:
            return False
        self._since = self.revision
        self._decide()
        return True

    def tell(self, endpoint: Endpoint | None, revision: int) -> None:
        """The datastore's word, None for a deletion, as of `revision`."""
        if endpoint is not None and self._is_earlier(endpoint, revision):
            self._former = frozenset(endpoint.networks)
        self.stored, self.revision = self._with_mac(endpoint), revision
        if revision >= self._floor:
            self._floor = 0
        if endpoint is not None and endpoint.container_id not in ("", *self._dead):
            self._detached = False
        self._decide()

    def offer(self, endpoint: Endpoint) -> None:
        """`cni` is about to store this."""
        if self._since is not None:
            # The offer before was stored, and the datastore has not told of it yet.
            self._floor = max(self._floor, self._since)
        self._dead.pop(endpoint.container_id, None)
        _remember(self._given, frozenset(endpoint.networks))
        self.offered, self._since, self._guess = endpoint, None, None
        stored = self.stored
        other = stored is not None and stored.container_id != endpoint.container_id
        self._former = frozenset(stored.networks) if stored is not None and other else None
        self._decide()

    def settle(self, container_id: str, revision: int) -> None:
        """What this container's ADD offered is stored since `revision`; 0: that is not known."""
        if self.offered is not None and self.offered.container_id == container_id:
            self._since = revision
            self._decide()

    def retract(self, container_id: str) -> None:
        """Retract this container's endpoint, which is gone or was never created."""
        if self.offered is not None and self.offered.container_id == container_id:
            self._floor = max(self._floor, self._since or 0)
            self._end()
        _remember(self._dead, container_id)
        self._detached = True
        self._decide()

    def abandon(self, offered: Endpoint) -> bool | None:
        """Who made this offer is gone, and did not say that it was stored.

        Returns whether the datastore names its container all the same; None: it does not count
        any more, so that nothing changes.
        """
        if self.offered is not offered or self._since is not None:
            return None
        self._end()
        self._decide()
        return self.stored is not None and self.stored.container_id == offered.container_id

    def listing_begins(self) -> None:
        """Begin a listing of the datastore."""
        self._listed = self.offered if self._since is not None else None
        self._listing = self._listed is not None or bool(self._floor) or self.bygone
        self._listed_dead = tuple(self._dead) if self.bygone else ()

    def listing_ended(self) -> None:
        """End a listing that started after `listing_begins` (STD-6)."""
        if self._listing:
            self._listing, self._floor = False, 0
            if self._since is not None and self.offered is self._listed:
                # From now on each word counts, but for addresses that are of before (STD-3).
                self._since, self._former = 0, self._former or frozenset()
                if self.stored is None:
                    self._end()
            self._listed = None
            named = self.stored.container_id if self.stored is not None else ""
            for container_id in self._listed_dead:
                if container_id != named:
                    self._dead.pop(container_id, None)
            if self.bygone:
                self._given.clear()
            self._decide()

    def _is_earlier(self, endpoint: Endpoint, revision: int) -> bool:
        """Whether this is of a sandbox before the offered one."""
        offered = self.offered
        return (
            offered is not None
            and endpoint.container_id != offered.container_id
            and not self._is_new(revision)
        )

    def _is_new(self, revision: int) -> bool:
        return self._since is not None and revision >= self._since

    def _end(self) -> None:
        self.offered = self._since = self._former = self._guess = None

    def _decide(self) -> None:
        """The one decision: whether the offer still counts, and what follows."""
        offered, stored = self.offered, self.stored
        if offered is not None:
            if self._is_new(self.revision):
                if stored is not None and self._lacks_addresses(stored, offered):
                    # Here the datastore decides on everything else (STD-3).
                    self._guess = frozenset(stored.networks)
                    self.now = replace(stored, networks=offered.networks, floating=offered.floating)
                    return
                self._end()
            elif self._since is None and stored == offered and stored.uid == offered.uid:
                self._end()
            else:
                self.now = offered
                return
        self.now = None if self._is_past(stored) else stored

    def _lacks_addresses(self, stored: Endpoint, offered: Endpoint) -> bool:
        """Whether the addresses of the offered sandbox are still to be reported.

        Addresses that neither were offered nor known before are a decision of others, and count;
        none at all are a pod's that has ended.
        """
        return (
            stored.container_id == offered.container_id
            and bool(stored.networks)
            and frozenset(stored.networks) != frozenset(offered.networks)
            and self._is_former(frozenset(stored.networks))
        )

    def _is_former(self, networks: Networks) -> bool:
        """Whether these may be the addresses of a sandbox before the offered one."""
        if networks in self._given:
            return True
        if self._former is None:
            return self._guess in (None, networks)
        return networks == self._former

    def _is_past(self, stored: Endpoint | None) -> bool:
        if stored is None or self.revision < self._floor:
            return True
        # A pod whose container was taken away is stored without one, still with its address.
        left = self._detached and not stored.container_id and bool(stored.networks)
        return left or stored.container_id in self._dead

    def _with_mac(self, endpoint: Endpoint | None) -> Endpoint | None:
        """Kubernetes stores no hardware address: `cni`'s word on it holds for its container."""
        if endpoint is None or endpoint.mac:
            return endpoint
        for known in (self.offered, self.stored):
            if known is not None and known.mac and known.container_id == endpoint.container_id:
                return replace(endpoint, mac=known.mac)
        return endpoint
