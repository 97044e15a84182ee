"""A chain as it stands in the kernel: packed rules, each with the hash of itself and all before it.

Problem: the kernel gives rules back as it understands them, not as they were sent. So each rule
carries in its comment a hash over itself and its predecessors; two chains are equal if their lists
of hashes are (IPT-1, with bytes in the place of text). A chain's name is not part of the hash:
chains with equal rules share one packing.

Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.expressions import Family, lookup
from linux.nftables.port_sets import Part, PortSet

HASH_PREFIX = "cali:"
_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Code:
    """One rule: its expressions in order and the comment that people read."""

    parts: tuple[Part, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Packed:
    """The rules of a chain, ready to be sent, and the sets of ports that they ask, by name."""

    hashes: tuple[str, ...]
    rules: tuple[bytes, ...]
    port_sets: Mapping[str, PortSet] = field(default_factory=dict, hash=False)

    def requests(self, family: Family, table: str, chain: str) -> Iterable[bytes]:
        """What adds the rules to an empty chain."""
        place = messages.chain_place(table, chain)
        for rule in self.rules:
            yield messages.new_rule(family, place, rule)


_PACKED_AT_ONCE = 500


def pack(codes: Sequence[Code]) -> Packed:
    """Hashes and packs the rules of one chain."""
    steps = packing(codes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            packed: Packed = end.value
            return packed


def packing(codes: Sequence[Code]) -> Generator[None, None, Packed]:
    """The same in steps of some hundred rules."""
    hashes = []
    rules: list[bytes] = []
    port_sets: dict[str, PortSet] = {}
    digest = b""
    for code in codes:
        state = hashlib.sha224(digest)
        for part in code.parts:
            state.update(part if isinstance(part, bytes) else repr(part).encode())
        state.update(code.comment.encode())
        digest = state.digest()
        name = base64.urlsafe_b64encode(digest).decode()[:_LENGTH]
        hashes.append(name)
        text = f"{HASH_PREFIX}{name}; {code.comment}" if code.comment else HASH_PREFIX + name
        body = b"".join(_expression(part, port_sets) for part in code.parts)
        rules.append(m.nest(messages.RULE_EXPRESSIONS, body) + messages.comment_data(text))
        if len(rules) % _PACKED_AT_ONCE == 0:
            yield
    return Packed(tuple(hashes), tuple(rules), port_sets)


def _expression(part: Part, port_sets: dict[str, PortSet]) -> bytes:
    """The expression of one part; a set of ports that it asks is noted."""
    if isinstance(part, bytes):
        return part
    name = part.name
    port_sets[name] = part
    return lookup(name, negated=part.negated)


def hash_in(comment: str) -> str:
    """The hash that a comment carries; empty where it carries none of ours."""
    if not comment.startswith(HASH_PREFIX):
        return ""
    return comment[len(HASH_PREFIX) :].partition(";")[0]
