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
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.expressions import Family, Part, PortSet, lookup

HASH_PREFIX = "cali:"
_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Code:
    """One rule: its expressions in order and what people read beside it."""

    parts: tuple[Part, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Packed:
    """The rules of a chain, ready to be sent."""

    hashes: tuple[str, ...]
    rules: tuple[tuple[tuple[Part, ...], bytes], ...]

    def requests(
        self, family: Family, table: str, chain: str, ids: Iterator[int]
    ) -> Iterable[bytes]:
        """What adds the rules to an empty chain; `ids` numbers unnamed sets."""
        place = messages.chain_place(table, chain)
        for parts, comment in self.rules:
            if len(parts) == 1 and isinstance(parts[0], bytes):
                yield messages.new_rule(family, place, parts[0] + comment)
                continue
            body: list[bytes] = []
            for part in parts:
                if isinstance(part, bytes):
                    body.append(part)
                    continue
                number = next(ids)
                yield from messages.port_set(family, table, part, number)
                body.append(lookup(messages.anonymous_name(), negated=part.negated, set_id=number))
            yield messages.new_rule(
                family, place, m.nest(messages.RULE_EXPRESSIONS, *body) + comment
            )


_PACKED_AT_ONCE = 500

EMPTY = Packed((), ())


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
    rules: list[tuple[tuple[Part, ...], bytes]] = []
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
        parts = code.parts
        if not any(isinstance(part, PortSet) for part in parts):
            joined = b"".join(part for part in parts if isinstance(part, bytes))
            parts = (m.nest(messages.RULE_EXPRESSIONS, joined),)
        rules.append((parts, messages.comment_data(text)))
        if len(rules) % _PACKED_AT_ONCE == 0:
            yield
    return Packed(tuple(hashes), tuple(rules))


def hash_in(comment: str) -> str:
    """The hash that a comment carries; empty where it carries none of ours."""
    if not comment.startswith(HASH_PREFIX):
        return ""
    return comment[len(HASH_PREFIX) :].partition(";")[0]
