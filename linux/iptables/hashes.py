"""Rule hashes: a rule's comment names the rule, its place and all rules before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HashScheme:
    """How our rules are recognised.

    `prefix` stands before each hash in the comment ("cali:" for a Calico-compatible agent);
    chains whose name starts with one of `chain_prefixes` are ours as a whole.
    """

    prefix: str
    chain_prefixes: tuple[str, ...]

    def owns(self, chain: str) -> bool:
        """Whether a chain is ours by its name."""
        return chain.startswith(self.chain_prefixes)

    def hashes(self, chain: str, rules: Sequence[str]) -> tuple[str, ...]:
        """The 16-character hash of each rule (text without "-A CHAIN")."""
        raise NotImplementedError

    def comment(self, rule_hash: str) -> str:
        """The match that carries a hash in the rule."""
        return f'-m comment --comment "{self.prefix}{rule_hash}"'
