"""Which rendered rules are not to be remembered any more.

What was rendered is remembered by the identity of its rules, for pods of one kind have one tuple
of them. Those of a policy of thousands of rules are megabytes, and of no use once its chain has
others, or is gone. Tested in tests/felix/dataplane/test_large_chains.py.
"""

from __future__ import annotations

from felix.rules.model import Rule

LARGE = 100
"""Rules of one chain."""


class LargeChains:
    """The chains of one table that have many rules."""

    def __init__(self) -> None:
        self._rules: dict[str, int] = {}

    def now(self, chain: str, rules: tuple[Rule, ...] = ()) -> int:
        """A chain has these rules now; returns the `id` of the many that it had before, or 0."""
        before = self._rules.pop(chain, 0)
        if len(rules) >= LARGE:
            self._rules[chain] = id(rules)
        return before if before != id(rules) else 0
