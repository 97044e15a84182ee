"""Sets of ports: several ranges of a rule are looked up in a set that is named by its content.

Tested in tests/linux/test_nftables_ports.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

PORT_SET_PREFIX = "ports-"
_LONGEST_PORTS = 40


@dataclass(frozen=True, slots=True)
class PortSet:
    """A lookup in a set of ports. `ranges` (first, last) are in order and do not touch."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    @property
    def name(self) -> str:
        """What the set is called, by what is in it: (80, 80), (90, 95) is ports-80_90-95."""
        text = "_".join(str(a) if a == b else f"{a}-{b}" for a, b in self.ranges)
        if len(text) > _LONGEST_PORTS:
            text = hashlib.sha256(text.encode()).hexdigest()[:_LONGEST_PORTS]
        return PORT_SET_PREFIX + text


Part = bytes | PortSet
"""A part of a rule: packed expressions, or a lookup in a set that must be made first."""


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges in order, none touching the next."""
    disjoint: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if disjoint and first <= disjoint[-1][1] + 1:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], last))
        else:
            disjoint.append((first, last))
    return tuple(disjoint)
