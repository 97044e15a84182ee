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
from itertools import islice

from bgp.routes import bestpath
from bgp.routes.bestpath import Candidate, Source
from bgp.routes.peer_table import Entry, PeerTable, only_loops
from bgp.routes.prefix_search import inside
from bgp.speaker.interface import Announced, Family, IPAddress, IPNetwork, PathsReceived
from bgp.speaker.path_keys import PathKey, path_id_of, path_key, prefix_of

Judge = Callable[[IPNetwork, Candidate], Candidate | str]


class Rib:
    """The table. `own` are this node's addresses; who changes them asks for all bests again."""

    def __init__(self, judge: Judge = only_loops) -> None:
        self.judge = judge
        self._paths: dict[IPNetwork, tuple[Entry, ...]] = {}
        self._peers: dict[IPAddress, PeerTable] = {}
        self.own: frozenset[IPAddress] = frozenset()
        self._unresolved: frozenset[IPAddress] = frozenset()
        self._hops: dict[IPAddress, int] = {}
        self.rejected = 0

    def update(self, received: PathsReceived, source: Source) -> set[IPNetwork]:
        """Apply one UPDATE. A refused path replaces the old one, too."""
        dirty: set[IPNetwork] = set()
        table = self._peers.setdefault(received.peer, PeerTable(received.peer))
        for gone in received.withdrawn:
            self._remove(table, gone.prefix, gone.path_id, dirty)
        before: Announced | None = None
        for each in received.announced:
            hop, path_id = each.next_hop, each.path_id
            if before is None or hop is not before.next_hop or path_id != before.path_id:
                raw = table.shared(Candidate(source, hop, received.attributes, path_id))
            before = each
            if self._learn(each.prefix, raw, table):
                dirty.add(each.prefix)
        return dirty

    def _held(self, peer: IPAddress) -> PeerTable:
        return self._peers.get(peer) or PeerTable(peer)

    def _learn(self, prefix: IPNetwork, raw: Candidate, table: PeerTable) -> bool:
        """Take a path as it came; returns whether what is used differs now."""
        key = path_key(prefix, raw.path_id)
        table.keys.add(key)
        table.stale.discard(key)
        old = self._entry(prefix, raw.source.peer, raw.path_id)
        if old is not None:
            if old.raw == raw:
                return False
            self._count(old.raw.next_hop, -1)
        self._count(raw.next_hop, 1)
        return self._judge(prefix, raw, old, table)

    def _entry(self, prefix: IPNetwork, peer: IPAddress, path_id: int) -> Entry | None:
        for entry in self._paths.get(prefix, ()):
            if entry.of(peer, path_id):
                return entry
        return None

    def _judge(
        self, prefix: IPNetwork, raw: Candidate, old: Entry | None, table: PeerTable
    ) -> bool:
        """Judge a path in the place of `old`; returns whether what is used differs now."""
        verdict, key = self.judge(prefix, raw), path_key(prefix, raw.path_id)
        if isinstance(verdict, str):
            self.rejected += table.refuse(key, verdict)
            used = None
        else:
            table.accept(key)
            used = verdict
        before = old.used if old is not None else None
        changed = used is not before and used != before
        if changed or old is None or old.raw is not raw:
            self._put(prefix, old, table.alone(raw, used))
        return changed

    def _put(self, prefix: IPNetwork, old: Entry | None, new: tuple[Entry, ...]) -> None:
        """Hold `new` in the place of `old`."""
        rest = tuple([each for each in self._paths.get(prefix, ()) if each is not old])
        if rest or new:
            self._paths[prefix] = rest + new  # one of them alone stays the same object
        else:
            del self._paths[prefix]

    def judge_again(self, prefixes: Iterable[IPNetwork] | None = None) -> set[IPNetwork]:
        """The rules changed, for these prefixes (None: for all)."""
        dirty = set()
        for prefix in list(self._paths) if prefixes is None else prefixes:
            for entry in self._paths.get(prefix, ()):
                if self._judge(prefix, entry.raw, entry, self._peers[entry.raw.source.peer]):
                    dirty.add(prefix)
        return dirty

    def source_changed(self, source: Source) -> set[IPNetwork]:
        """A session's properties changed: judge its paths again."""
        dirty = set()
        table = self._held(source.peer)
        for key in table.keys:
            prefix = prefix_of(key)
            entry = self._entry(prefix, source.peer, path_id_of(key))
            assert entry is not None
            raw = Candidate(source, entry.raw.next_hop, entry.raw.attributes, entry.raw.path_id)
            if self._judge(prefix, table.shared(raw), entry, table):
                dirty.add(prefix)
        return dirty

    def inside(self, network: IPNetwork) -> list[IPNetwork]:
        """The prefixes of the table that are `network` or lie inside it."""
        return inside(self._paths, network)

    def mark_stale(self, peer: IPAddress, family: Family) -> None:
        """Mark all paths of the peer and family as stale."""
        table = self._held(peer)
        table.stale |= {key for key in table.keys if Family.of(prefix_of(key)) is family}

    def sweep(self, peer: IPAddress, family: Family) -> set[IPNetwork]:
        """Drop what is still stale of the peer and family."""
        table = self._held(peer)
        return self._drop(table, table.stale, family)

    def drop(self, peer: IPAddress, family: Family | None = None) -> set[IPNetwork]:
        """Drop all paths of the peer (and family)."""
        table = self._held(peer)
        return self._drop(table, table.keys, family)

    def _drop(
        self, table: PeerTable, keys: Iterable[PathKey], family: Family | None
    ) -> set[IPNetwork]:
        dirty: set[IPNetwork] = set()
        for key in [key for key in keys if family in (None, Family.of(prefix_of(key)))]:
            self._remove(table, prefix_of(key), path_id_of(key), dirty)
        if not table.keys:
            self._peers.pop(table.peer, None)
        if len(dirty) > len(self._paths):
            self._paths = dict(self._paths)  # the old one keeps the room of all that it ever had
        return dirty

    def _remove(
        self, table: PeerTable, prefix: IPNetwork, path_id: int, dirty: set[IPNetwork]
    ) -> None:
        entry = self._entry(prefix, table.peer, path_id)
        if entry is None:
            return
        key = path_key(prefix, path_id)
        table.keys.discard(key)
        table.stale.discard(key)
        table.accept(key)
        self._count(entry.raw.next_hop, -1)
        self._put(prefix, entry, ())
        dirty.add(prefix)

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
            if any(each.raw.next_hop in changed for each in paths)
        }

    def best(self, prefix: IPNetwork) -> list[Candidate]:
        """The paths to use for a prefix, best first; none if there is none.

        A path whose next hop is this node (RFC 4271 5.1.3), or one that cannot be reached
        (9.1.2.1), leads nowhere.
        """
        paths = self._paths.get(prefix)
        if not paths:
            return []
        used = (entry.used for entry in paths)
        return bestpath.select(
            each
            for each in used
            if each and each.next_hop not in self.own and each.next_hop not in self._unresolved
        )

    def taken(self, prefix: IPNetwork) -> list[Candidate]:
        """All paths of a prefix that are not refused: the best first, the others by peer."""
        best = self.best(prefix)
        used = [each.used for each in self._paths.get(prefix, ()) if each.used]
        rest = sorted(used, key=lambda each: (str(each.source.peer), each.path_id))
        return [*best, *(each for each in rest if each not in best)]

    def prefixes(self) -> set[IPNetwork]:
        """All prefixes that have a path."""
        return set(self._paths)

    def of(self, peer: IPAddress) -> set[IPNetwork]:
        """The prefixes that a peer offers."""
        return {prefix_of(key) for key in self._held(peer).keys}

    def offered_by(self, prefix: IPNetwork) -> set[IPAddress]:
        """The peers that offer a prefix, refused paths left out."""
        return {each.raw.source.peer for each in self._paths.get(prefix, ()) if each.used}

    def peers(self) -> set[IPAddress]:
        """All peers that have a path here."""
        return set(self._peers)

    def count(self, peer: IPAddress) -> tuple[int, int]:
        """How many paths of a peer there are, and how many of them are stale."""
        table = self._held(peer)
        return len(table.keys), len(table.stale)

    def refused(self, peer: IPAddress) -> tuple[int, int]:
        """How many paths of a peer are not taken: for a fault, and because they are loops."""
        table = self._held(peer)
        return len(table.faults), len(table.loops)

    def faults(self, peer: IPAddress, most: int) -> dict[IPNetwork, str]:
        """The prefixes of the first so many paths that are not taken for a fault, and why.

        Costs `most`.
        """
        reasons: dict[IPNetwork, set[str]] = {}
        for key, why in islice(self._held(peer).faults.items(), most):
            reasons.setdefault(prefix_of(key), set()).add(why)
        return {prefix: "; ".join(sorted(whys)) for prefix, whys in reasons.items()}
