"""What the peers told us: paths by (peer, prefix, path id), and the best of each prefix.

Paths are kept as they came, with what our own rules (`judge`) made of them: a rule that
changes later is applied to what is already here, without asking the peer again.

A path is stale when its peer's session ended without a word and graceful restart keeps it
(RFC 4724 section 4.2). A stale path is used like any other until it is learned again,
swept at End-of-RIB or dropped by a timer. Timers live in `graceful_restart`; here only
marks. Every call returns the prefixes whose choice may have changed, so that a change costs
what it touches.

  RIB-1  A peer's paths never influence another peer's.
  RIB-2  After a session ended and came back and End-of-RIB was seen, the table is what the
         new session alone would have made (hypothesis: tests/bgp/test_rib.py).
  RIB-3  After `judge_again` the table is what it were if the rules had always been so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from bgp.routes import bestpath
from bgp.routes.bestpath import Candidate, Source
from bgp.routes.peer_table import PathKey, PeerTable, only_loops
from bgp.speaker.interface import Family, IPAddress, IPNetwork, PathsReceived

_WALK = 256
"""Networks of at most so many addresses are looked up piece by piece, larger ones searched."""
Judge = Callable[[IPNetwork, Candidate], Candidate | str]


@dataclass(slots=True)
class _Entry:
    """A path as it came, and as it is used; None: refused."""

    raw: Candidate
    used: Candidate | None


class Rib:
    """The table. `own` are this node's addresses; who changes them asks for all bests again."""

    def __init__(self, judge: Judge = only_loops) -> None:
        self.judge = judge
        self._paths: dict[IPNetwork, dict[tuple[IPAddress, int], _Entry]] = {}
        self._peers: dict[IPAddress, PeerTable] = {}
        self.own: frozenset[IPAddress] = frozenset()
        self._unresolved: frozenset[IPAddress] = frozenset()
        self._hops: dict[IPAddress, int] = {}
        self.rejected = 0

    def update(self, received: PathsReceived, source: Source) -> set[IPNetwork]:
        """Apply one UPDATE. A refused path replaces the old one, too."""
        dirty: set[IPNetwork] = set()
        table = self._peers.setdefault(received.peer, PeerTable())
        for gone in received.withdrawn:
            self._remove(received.peer, table, (gone.prefix, gone.path_id), dirty)
        for each in received.announced:
            key = (each.prefix, each.path_id)
            raw = Candidate(source, each.next_hop, received.attributes, each.path_id)
            table.keys.add(key)
            table.stale.discard(key)
            paths = self._paths.setdefault(each.prefix, {})
            entry = paths.get((received.peer, each.path_id))
            if entry is None or entry.raw != raw:
                if entry is None:
                    entry = paths[received.peer, each.path_id] = _Entry(raw, None)
                else:
                    self._count(entry.raw.next_hop, -1)
                self._count(raw.next_hop, 1)
                entry.raw = raw
                if self._judge(entry, key, table):
                    dirty.add(each.prefix)
        return dirty

    def _judge(self, entry: _Entry, key: PathKey, table: PeerTable) -> bool:
        """Judge a path; returns whether what is used differs now."""
        verdict = self.judge(key[0], entry.raw)
        if isinstance(verdict, str):
            self.rejected += table.refuse(key, verdict)
            used = None
        else:
            table.accept(key)
            used = verdict
        changed, entry.used = used != entry.used, used
        return changed

    def judge_again(self, prefixes: Iterable[IPNetwork] | None = None) -> set[IPNetwork]:
        """The rules changed, for these prefixes (None: for all)."""
        dirty = set()
        for prefix in list(self._paths) if prefixes is None else prefixes:
            for (peer, path_id), entry in self._paths.get(prefix, {}).items():
                if self._judge(entry, (prefix, path_id), self._peers[peer]):
                    dirty.add(prefix)
        return dirty

    def source_changed(self, source: Source) -> set[IPNetwork]:
        """A session's properties changed: judge its paths again."""
        dirty = set()
        table = self._peers.get(source.peer, PeerTable())
        for key in table.keys:
            entry = self._paths[key[0]][source.peer, key[1]]
            raw = entry.raw
            entry.raw = Candidate(source, raw.next_hop, raw.attributes, raw.path_id)
            if self._judge(entry, key, table):
                dirty.add(key[0])
        return dirty

    def inside(self, network: IPNetwork) -> list[IPNetwork]:
        """The prefixes of the table that are `network` or lie inside it."""
        if network.num_addresses > _WALK:
            return [
                prefix
                for prefix in self._paths
                if prefix.version == network.version and prefix.subnet_of(network)  # type: ignore[arg-type]
            ]
        lengths = range(network.prefixlen, network.max_prefixlen + 1)
        return [
            subnet
            for length in lengths
            for subnet in network.subnets(new_prefix=length)
            if subnet in self._paths
        ]

    def mark_stale(self, peer: IPAddress, family: Family) -> None:
        """Mark all paths of the peer and family as stale."""
        table = self._peers.get(peer)
        if table is not None:
            table.stale |= {key for key in table.keys if Family.of(key[0]) is family}

    def sweep(self, peer: IPAddress, family: Family) -> set[IPNetwork]:
        """Drop what is still stale of the peer and family."""
        table = self._peers.get(peer)
        return self._drop(peer, table, table.stale if table else (), family)

    def drop(self, peer: IPAddress, family: Family | None = None) -> set[IPNetwork]:
        """Drop all paths of the peer (and family)."""
        table = self._peers.get(peer)
        return self._drop(peer, table, table.keys if table else (), family)

    def _drop(
        self,
        peer: IPAddress,
        table: PeerTable | None,
        keys: Iterable[PathKey],
        family: Family | None,
    ) -> set[IPNetwork]:
        dirty: set[IPNetwork] = set()
        if table is not None:
            for key in [key for key in keys if family in (None, Family.of(key[0]))]:
                self._remove(peer, table, key, dirty)
            if not table.keys:
                del self._peers[peer]
        return dirty

    def _remove(
        self, peer: IPAddress, table: PeerTable, key: PathKey, dirty: set[IPNetwork]
    ) -> None:
        if key not in table.keys:
            return
        table.keys.discard(key)
        table.stale.discard(key)
        table.accept(key)
        paths = self._paths[key[0]]
        self._count(paths.pop((peer, key[1])).raw.next_hop, -1)
        if not paths:
            del self._paths[key[0]]
        dirty.add(key[0])

    def _count(self, hop: IPAddress, more: int) -> None:
        count = self._hops.get(hop, 0) + more
        if count:
            self._hops[hop] = count
        else:
            del self._hops[hop]

    @property
    def hops(self) -> Mapping[IPAddress, int]:
        """The next hops, with the number of their paths."""
        return self._hops

    def resolve(self, unresolved: frozenset[IPAddress]) -> set[IPNetwork]:
        """Set the next hops that cannot be reached; all others can (RFC 4271 9.1.2.1)."""
        changed, self._unresolved = self._unresolved ^ unresolved, unresolved
        if changed.isdisjoint(self._hops):
            return set()
        return {
            prefix
            for prefix, paths in self._paths.items()
            if any(each.raw.next_hop in changed for each in paths.values())
        }

    def best(self, prefix: IPNetwork) -> list[Candidate]:
        """The paths to use for a prefix, best first; none if there is none.

        A path whose next hop is this node (RFC 4271 5.1.3), or one that cannot be reached
        (9.1.2.1), leads nowhere.
        """
        paths = self._paths.get(prefix)
        if not paths:
            return []
        used = (entry.used for entry in paths.values())
        return bestpath.select(
            each
            for each in used
            if each and each.next_hop not in self.own and each.next_hop not in self._unresolved
        )

    def taken(self, prefix: IPNetwork) -> list[Candidate]:
        """All paths of a prefix that are not refused: the best first, the others by peer."""
        best = self.best(prefix)
        used = [each.used for each in self._paths.get(prefix, {}).values() if each.used]
        rest = sorted(used, key=lambda each: (str(each.source.peer), each.path_id))
        return [*best, *(each for each in rest if each not in best)]

    def prefixes(self) -> set[IPNetwork]:
        """All prefixes that have a path."""
        return set(self._paths)

    def of(self, peer: IPAddress) -> set[IPNetwork]:
        """The prefixes that a peer offers."""
        table = self._peers.get(peer)
        return {prefix for prefix, _ in table.keys} if table else set()

    def offered_by(self, prefix: IPNetwork) -> set[IPAddress]:
        """The peers that offer a prefix, refused paths left out."""
        return {peer for (peer, _), each in self._paths.get(prefix, {}).items() if each.used}

    def peers(self) -> set[IPAddress]:
        """All peers that have a path here."""
        return set(self._peers)

    def count(self, peer: IPAddress) -> tuple[int, int]:
        """How many paths of a peer there are, and how many of them are stale."""
        table = self._peers.get(peer)
        return (len(table.keys), len(table.stale)) if table else (0, 0)

    def refused(self, peer: IPAddress) -> tuple[int, int]:
        """How many paths of a peer are not taken: for a fault, and because they are loops."""
        table = self._peers.get(peer)
        return (len(table.faults), len(table.loops)) if table else (0, 0)

    def faults(self, peer: IPAddress, most: int) -> dict[IPNetwork, str]:
        """The first so many prefixes that are not taken for a fault, and why. Costs `most`."""
        table = self._peers.get(peer)
        some = islice(table.faults.items(), most) if table else ()
        return {key[0]: why for key, why in some}
