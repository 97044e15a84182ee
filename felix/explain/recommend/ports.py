"""Ports merged: each once, and neighbours as one range.

Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 3
"""Ports in a row that are written as a range."""


def ranges_of(ports: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted ranges (first, last) that hold exactly these ports."""
    ranges: list[tuple[int, int]] = []
    for port in sorted(set(ports)):
        if ranges and ranges[-1][1] + 1 == port:
            ranges[-1] = (ranges[-1][0], port)
        else:
            ranges.append((port, port))
    return ranges


def entries_of(ports: Iterable[int]) -> list[int | str]:
    """The same as a rule of Calico's writes them: `[80, 443, "8080:8090"]`."""
    entries: list[int | str] = []
    for first, last in ranges_of(ports):
        if last - first + 1 >= SHORTEST:
            entries.append(f"{first}:{last}")
        else:
            entries += range(first, last + 1)
    return entries
