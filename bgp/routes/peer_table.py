"""The paths of one peer, and why some are refused.

Tested in tests/bgp/test_rib.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from bgp.routes import bestpath
from bgp.routes.bestpath import Candidate
from bgp.speaker.interface import IPAddress, IPNetwork
from bgp.speaker.path_keys import PathKey


@dataclass(frozen=True, slots=True)
class Entry:
    """A path as it came, and as it is used; None: refused. Equal ones of a peer are one object."""

    raw: Candidate
    used: Candidate | None

    def of(self, peer: IPAddress, path_id: int) -> bool:
        """Whether it is this peer's path with this id."""
        return self.raw.path_id == path_id and self.raw.source.peer == peer


def only_loops(prefix: IPNetwork, path: Candidate) -> Candidate | str:
    """The judge that knows no datastore: everything that is no loop."""
    return bestpath.acceptable(path) or path


@dataclass
class PeerTable:
    """One peer's paths: all keys, those of them that are stale, and why some are refused.

    `loops` counts the paths refused because of a loop; `faults` are the other refused ones.
    `_last`: most prefixes of a peer differ in nothing else, so they hold what the last one holds.
    """

    peer: IPAddress
    keys: set[PathKey] = field(default_factory=set)
    stale: set[PathKey] = field(default_factory=set)
    loops: set[PathKey] = field(default_factory=set)
    faults: dict[PathKey, str] = field(default_factory=dict)
    _last: tuple[Entry, ...] = ()

    def shared(self, raw: Candidate) -> Candidate:
        """A path, or the last one if they are equal."""
        return self._last[0].raw if self._last and self._last[0].raw == raw else raw

    def alone(self, raw: Candidate, used: Candidate | None) -> tuple[Entry, ...]:
        """What a prefix with one path holds."""
        last = self._last[0] if self._last else None
        if last is None or last.raw is not raw or (last.used is not used and last.used != used):
            self._last = (Entry(raw, used),)
        return self._last

    def refuse(self, key: PathKey, why: str) -> bool:
        """A path is refused; returns whether it is a loop, and was none before."""
        if bestpath.is_loop(why):
            self.faults.pop(key, None)
            new = key not in self.loops
            self.loops.add(key)
            return new
        self.loops.discard(key)
        self.faults[key] = sys.intern(why)
        return False

    def accept(self, key: PathKey) -> None:
        """A path is not refused, or is gone."""
        self.loops.discard(key)
        self.faults.pop(key, None)
