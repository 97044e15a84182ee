"""What the peers told us: paths by (peer, prefix, path id), and the best of each prefix.

A path is stale when its peer's session ended without a word and graceful restart keeps it
(RFC 4724 section 4.2). A stale path is used like any other until it is learned again,
swept at End-of-RIB or dropped by a timer. Timers live in `graceful_restart`; here only
marks. Every call returns the prefixes whose choice may have changed, so that a change costs
what it touches.

  RIB-1  A peer's paths never influence another peer's.
  RIB-2  After a session ended and came back and End-of-RIB was seen, the table is what the
         new session alone would have made (hypothesis: tests/bgp/test_rib.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bgp import bestpath
from bgp.bestpath import Candidate, Source
from bgp.speaker.interface import Family, IPAddress, IPNetwork, PathsReceived

_Key = tuple[IPNetwork, int]


@dataclass
class _PeerTable:
    """One peer's paths: all keys, and those of them that are stale."""

    keys: set[_Key] = field(default_factory=set)
    stale: set[_Key] = field(default_factory=set)


class Rib:
    """The table. `own` are this node's addresses; who changes them asks for all bests again."""

    def __init__(self) -> None:
        self._paths: dict[IPNetwork, dict[tuple[IPAddress, int], Candidate]] = {}
        self._peers: dict[IPAddress, _PeerTable] = {}
        self.own: frozenset[IPAddress] = frozenset()
        self.rejected = 0

    def update(self, received: PathsReceived, source: Source) -> set[IPNetwork]:
        """Take one UPDATE. A path that must not be used replaces, and removes, the old one."""
        dirty: set[IPNetwork] = set()
        table = self._peers.setdefault(received.peer, _PeerTable())
        for gone in received.withdrawn:
            self._remove(received.peer, table, (gone.prefix, gone.path_id), dirty)
        for each in received.announced:
            key = (each.prefix, each.path_id)
            candidate = Candidate(source, each.next_hop, received.attributes, each.path_id)
            if bestpath.acceptable(candidate):
                self.rejected += 1
                self._remove(received.peer, table, key, dirty)
                continue
            table.keys.add(key)
            table.stale.discard(key)
            paths = self._paths.setdefault(each.prefix, {})
            if paths.get((received.peer, each.path_id)) != candidate:
                paths[received.peer, each.path_id] = candidate
                dirty.add(each.prefix)
        return dirty

    def mark_stale(self, peer: IPAddress, family: Family) -> None:
        """All paths of the peer and family are old from now on."""
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
        table: _PeerTable | None,
        keys: Iterable[_Key],
        family: Family | None,
    ) -> set[IPNetwork]:
        dirty: set[IPNetwork] = set()
        if table is not None:
            for key in [key for key in keys if family in (None, Family.of(key[0]))]:
                self._remove(peer, table, key, dirty)
            if not table.keys:
                del self._peers[peer]
        return dirty

    def _remove(self, peer: IPAddress, table: _PeerTable, key: _Key, dirty: set[IPNetwork]) -> None:
        if key not in table.keys:
            return
        table.keys.discard(key)
        table.stale.discard(key)
        paths = self._paths[key[0]]
        del paths[peer, key[1]]
        if not paths:
            del self._paths[key[0]]
        dirty.add(key[0])

    def best(self, prefix: IPNetwork) -> list[Candidate]:
        """The paths to use for a prefix, best first; none if there is none.

        A path whose next hop is this node leads nowhere (RFC 4271 5.1.3).
        """
        paths = self._paths.get(prefix)
        if not paths:
            return []
        return bestpath.select(each for each in paths.values() if each.next_hop not in self.own)

    def prefixes(self) -> set[IPNetwork]:
        """All prefixes that have a path."""
        return set(self._paths)

    def peers(self) -> set[IPAddress]:
        """All peers that have a path here."""
        return set(self._peers)

    def count(self, peer: IPAddress) -> tuple[int, int]:
        """How many paths of a peer there are, and how many of them are stale."""
        table = self._peers.get(peer)
        return (len(table.keys), len(table.stale)) if table else (0, 0)
