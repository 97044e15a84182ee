"""Comments of rules, where packets do not meet them.

Problem: iptables writes a comment as a match that always holds, and the kernel calls it for every
packet that the rule is for: 57 ns of about 4,300 for a packet from pod to pod, which met five of
them. But the kernel leaves a rule at its verdict, so what stands behind that is never asked; and
iptables (since 1.6.1) reads a rule's user data as its last comment. So comments are moved there,
and iptables lists the rule as before.

Rules that a program wrote are replaced afterwards, in parts, since the next writer waits for the
kernel's readers to leave the old ones.

CMT-1: iptables lists a rule with other places of its comments as before, in the same order.
CMT-2: no rule is replaced but one that carries our hash and has only matches that are plain;
       where the kernel refuses it, the rule stays as it was.
CMT-3: a replaced rule counts on from what it had counted.
Tested in tests/linux/test_iptables_comments.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

from linux.errors import KernelError
from linux.iptables.hashes import HashScheme
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.connection import Connection, to_its_end
from linux.nftables.expressions import Family

ELEMENT, NAME, DATA = 1, 1, 2
"""Attributes: of the list of expressions, and of one of them."""
_EXTENSION, _INFO = 1, 3
"""The name of a match of xtables, and what it was told."""
_COMMENT = b"comment\0"
_LONGEST = 253
"""Bytes of a comment that fit into a rule's user data with its header and its end."""
# Others look at the protocol, which the kernel needs beside them and does not tell. A set is told
# by a number that is its own while a rule names it.
_PLAIN = frozenset({_COMMENT, b"conntrack\0", b"mark\0", b"set\0", b"MARK\0"})
_NATIVE = frozenset({b"meta\0", b"cmp\0", b"bitwise\0", b"payload\0", b"immediate\0", b"counter\0"})
_AT_ONCE = 400
"""Rules that are replaced in one batch: 25 ms of CPU."""
_FEW = 50
"""Chains that are asked for one by one."""


def moved(elements: Sequence[bytes], userdata: bytes) -> tuple[list[bytes], bytes]:
    """A rule's expressions and its user data, with its comments behind the rest (CMT-1). Pure."""
    said = [each for each in elements if _comment(each) is not None]
    if not said:
        return list(elements), userdata
    others = [each for each in elements if _comment(each) is None]
    last = _comment(said[-1]) or b""
    if not userdata and len(last) <= _LONGEST:
        return [*others, *said[:-1]], messages.comment_bytes(last)
    return [*others, *said], userdata


def _comment(element: bytes) -> bytes | None:
    """The text of an expression that is a comment."""
    if _COMMENT not in element:
        return None
    extension = m.parse_attributes(m.parse_attributes(element).get(DATA, b""))
    if extension.get(_EXTENSION) != _COMMENT:
        return None
    return extension.get(_INFO, b"").partition(b"\0")[0]


class Comments:
    """Moves the comments of a table's rules that a program wrote; at first, of all its rules."""

    def __init__(self, table: str, family: Family, scheme: HashScheme) -> None:
        self._table, self._family, self._prefix = table, family, scheme.prefix.encode()
        # None: all of them.
        self._chains: set[str] | None = None

    @property
    def due(self) -> bool:
        """Whether there may be something to move."""
        return self._chains is None or bool(self._chains)

    def restored(self, chains: Collection[str]) -> None:
        """A program wrote rules of these chains."""
        if self._chains is not None:
            self._chains.update(chains)
            if len(self._chains) > _FEW:
                self._chains = None

    async def move(self) -> None:
        """Move comments of some hundred rules; `due` says whether any are left.

        A refusal is the end: packets go on paying for what stays.
        """
        chains, self._chains = self._chains, set()
        try:
            # Here, since another thread may be in another network namespace.
            with closing(Connection()) as connection:
                await to_its_end(asyncio.to_thread(self._move, connection, chains))
        except (KernelError, OSError):
            self._chains = set()

    def _move(self, connection: Connection, chains: set[str] | None) -> None:
        if chains is None:
            rules = connection.objects(messages.GETRULE, self._family, self._table)
        else:
            rules = [
                rule
                for chain in chains
                for rule in connection.rules(self._family, self._table, chain)
            ]
        requests = list(islice(self._requests(rules), _AT_ONCE))
        connection.commit(requests)
        if len(requests) == _AT_ONCE:
            self._chains = chains

    def _requests(self, rules: Iterable[m.Attributes]) -> Iterator[bytes]:
        """A replacement for each rule whose comments stand elsewhere than they could."""
        for rule in rules:
            listed = rule.get(messages.RULE_EXPRESSIONS, b"")
            # What has user data was moved before.
            if messages.RULE_USERDATA in rule or _COMMENT not in listed:
                continue
            before = [data for _, data in m.iterate_attributes(listed)]
            after, said = moved(before, b"")
            if not self._ours(before) or after == before or not all(map(_plain, before)):
                continue
            expressions = (m.nest(ELEMENT, element) for element in after)
            body = m.nest(messages.RULE_EXPRESSIONS, *expressions)
            if said:
                body += m.attribute(messages.RULE_USERDATA, said)
            chain = rule[messages.RULE_CHAIN].rstrip(b"\0").decode()
            place = messages.chain_place(self._table, chain)
            handle = rule[messages.RULE_HANDLE]
            yield messages.replace_rule(self._family, place, handle, body)

    def _ours(self, elements: Iterable[bytes]) -> bool:
        """Whether one of these expressions is a comment with our hash."""
        return any((_comment(each) or b"").startswith(self._prefix) for each in elements)


def _plain(element: bytes) -> bool:
    """Whether an expression can be written again as the kernel tells it."""
    expression = m.parse_attributes(element)
    name = expression.get(NAME, b"")
    if name in (b"match\0", b"target\0"):
        return m.parse_attributes(expression.get(DATA, b"")).get(_EXTENSION) in _PLAIN
    return name in _NATIVE
