"""The paths of one peer, and why some are refused.

Tested in tests/bgp/test_rib.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bgp.routes import bestpath
from bgp.routes.bestpath import Candidate
from bgp.speaker.interface import IPNetwork

PathKey = tuple[IPNetwork, int]


def only_loops(prefix: IPNetwork, path: Candidate) -> Candidate | str:
    """The judge that knows no datastore: everything that is no loop."""
    return bestpath.acceptable(path) or path


@dataclass
class PeerTable:
    """One peer's paths: all keys, those of them that are stale, and why some are refused.

    `loops` counts the paths refused because of a loop; `faults` are the other refused ones.
    """

    keys: set[PathKey] = field(default_factory=set)
    stale: set[PathKey] = field(default_factory=set)
    loops: set[PathKey] = field(default_factory=set)
    faults: dict[PathKey, str] = field(default_factory=dict)

    def refuse(self, key: PathKey, why: str) -> bool:
        """A path is refused; returns whether that, or its reason, is new."""
        if bestpath.is_loop(why):
            self.faults.pop(key, None)
            new = key not in self.loops
            self.loops.add(key)
            return new
        self.loops.discard(key)
        new = self.faults.get(key) != why
        self.faults[key] = why
        return new

    def accept(self, key: PathKey) -> None:
        """A path is not refused, or is gone."""
        self.loops.discard(key)
        self.faults.pop(key, None)
