"""The conditions of policy objects: what of each is broken, or not enforced in full.

Tested in tests/felix/calc/policy/test_unreadable.py.
"""

from __future__ import annotations

from libcalico.model import ResourceKey


class Conditions(dict[ResourceKey, str]):
    """A text for every object that is broken or not enforced in full."""

    def report(self, key: ResourceKey, problem: str) -> None:
        """Set the condition of an object; an empty text clears it."""
        if problem:
            self[key] = problem
        else:
            self.pop(key, None)
