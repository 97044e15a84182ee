"""Templates of requests: the bytes around the chain's name and the rule's hash.

Chains of pods of one kind differ in their name and their hashes alone, and names of one length
leave all other bytes of a request as they are.
Tested in tests/linux/test_iptables_packed.py.
"""

from __future__ import annotations

from linux.iptables.hashes import HASH_LENGTH
from linux.iptables.render import Addition, Filling
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.expressions import Family

_MOST, _MOST_BLOCKS, _LONGEST_BLOCK = 4000, 200, 64
"""What is remembered: single rules, chains, and rules of such a chain (those of pods are few)."""

_Block = tuple[tuple[bytes, bytes, bytes], ...]


class Templates:
    """The templates of one table."""

    def __init__(self, table: str, family: Family) -> None:
        self._table, self._family = table, family
        # Bytes before and behind the hash, of rules that name no interface, by their text.
        self._ready: dict[str, tuple[bytes, bytes]] = {}
        # What surrounds chain and hash of each rule that fills a chain, by the rules' texts and
        # the length of the chain's name.
        self._blocks: dict[tuple[tuple[str, ...], int], _Block] = {}
        # What surrounds the name of a chain that is made, by the length of the name.
        self._chains: dict[int, tuple[tuple[bytes, bytes], ...]] = {}

    def clear(self) -> None:
        """Forget all rules."""
        self._ready.clear()
        self._blocks.clear()

    def rule_tail(self, step: Addition) -> bytes | None:
        """What stands behind the place of this rule; None: not known yet."""
        ready = self._ready.get(step.rule)
        return None if ready is None else b"".join((ready[0], step.hash.encode(), ready[1]))

    def filled(self, step: Filling) -> list[bytes] | None:
        """The requests that fill a chain; None: not known yet."""
        name = step.chain.encode()
        block = self._block(step.content.plain_rules, step.chain, name)
        if block is None:
            return None
        return [
            b"".join((head, name, middle, own.encode(), tail))
            for (head, middle, tail), own in zip(block, step.content.hashes, strict=True)
        ]

    def declared(self, chain: str) -> tuple[bytes, ...]:
        """Have an empty chain; names of one length leave everything else as it is."""
        name = chain.encode()
        pieces = self._chains.get(len(name))
        if pieces is None:
            start = self._before_name(chain)
            pieces = self._chains[len(name)] = tuple(
                (request[:start], request[start + len(name) :])
                for request in (
                    messages.new_chain(self._family, self._table, chain, None),
                    messages.flush_chain(self._family, self._table, chain),
                )
            )
        return tuple([before + name + behind for before, behind in pieces])

    def _before_name(self, chain: str) -> int:
        """How many bytes of a request stand before the chain's name.

        These are the header of the message, that of nf_tables, the table and the name's own.
        """
        place = len(messages.chain_place(self._table, chain))
        whole, empty = len(m.text(0, chain)), len(m.attribute(0, b""))
        return len(self.add_rule(b"")) + place - whole + empty

    def add_rule(self, body: bytes, *, first: bool = False) -> bytes:
        """A request that adds a rule; the body begins with the rule's place."""
        flags = m.NLM_F_CREATE | (0 if first else m.NLM_F_APPEND)
        return messages.request(messages.NEWRULE, flags, self._family, body)

    def _block(self, rules: tuple[str, ...], chain: str, name: bytes) -> _Block | None:
        """What surrounds the name and the hashes of a chain of these rules; None: not known yet.

        Names of one length leave everything else as it is.
        """
        if len(rules) > _LONGEST_BLOCK:
            return None
        key = (rules, len(name))
        block = self._blocks.get(key)
        if block is not None or not self._ready.keys() >= set(rules):
            return block
        place = messages.chain_place(self._table, chain)
        start, end = self._before_name(chain), len(self.add_rule(place))
        pieces = []
        for before, after in map(self._ready.__getitem__, rules):
            whole = self.add_rule(b"".join((place, before, bytes(HASH_LENGTH), after)))
            at = end + len(before)
            pieces.append((whole[:start], whole[start + len(name) : at], whole[at + HASH_LENGTH :]))
        if len(self._blocks) >= _MOST_BLOCKS:
            self._blocks.clear()
        block = self._blocks[key] = tuple(pieces)
        return block

    def keep(self, rule: str, body: bytes, own: bytes) -> None:
        """Keep a packed rule: its next use differs in the hash alone."""
        if len(self._ready) >= _MOST:
            self._ready.clear()
        # A hash stands there once, or its rule would not be known (`_in_pieces`).
        before, _, after = body.partition(own)
        self._ready[rule] = before, after
