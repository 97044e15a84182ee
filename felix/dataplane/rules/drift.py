"""What read-backs found changed by others: once, or again and again.

Pure. Tested in tests/felix/reports/test_audit.py.
"""

from __future__ import annotations

from collections.abc import Set


class Drift:
    """`lasting`: what the last two read-backs found changed, though it was repaired between."""

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()
        self.lasting: frozenset[str] = frozenset()

    def take(self, names: Set[str]) -> None:
        """A read-back found this changed."""
        self.lasting = self._before & names
        self._before = frozenset(names)
