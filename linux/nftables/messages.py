"""Requests to nf_tables, packed: tables, chains, rules, sets, elements, and the batch around them.

Layout: linux/netfilter/nfnetlink.h, nf_tables.h. Numbers are in network order.
Tested by all of tests/linux/test_nftables.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from linux.netlink import wire as m
from linux.nftables.expressions import FAMILIES, Family, TableFamily, be32
from linux.nftables.port_sets import PortSet

SUBSYSTEM = 10
(
    NEWTABLE, GETTABLE, DELTABLE, NEWCHAIN, GETCHAIN, DELCHAIN, NEWRULE, GETRULE, DELRULE,
    NEWSET, GETSET, DELSET, NEWSETELEM, GETSETELEM, DELSETELEM, NEWGEN, GETGEN,
) = range(17)  # fmt: skip
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
TABLE_NAME, TABLE_FLAGS = 1, 2
CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_TYPE = 3, 4, 5, 7
HOOK_NUMBER, HOOK_PRIORITY = 1, 2
RULE_CHAIN, RULE_HANDLE, RULE_EXPRESSIONS, RULE_USERDATA = 2, 3, 4, 7
SET_NAME, SET_FLAGS, SET_KEY_TYPE, SET_KEY_LEN, SET_DATA_TYPE, SET_DATA_LEN = 2, 3, 4, 5, 6, 7
SET_ID, SET_USERDATA, SET_COUNT = 10, 13, 20
ELEMENTS_SET, ELEMENTS = 2, 3
ELEMENT_KEY, ELEMENT_DATA, ELEMENT_FLAGS = 1, 2, 3
ANONYMOUS, CONSTANT, INTERVAL, MAP = 1, 2, 4, 8
INTERVAL_END = 1
TYPE_PORT, TYPE_INTERFACE, TYPE_VERDICT = 13, 41, 0xFFFFFF00
_BIG_ENDIAN_KEY = bytes((0, 4, 2, 0, 0, 0))
_HOST_ENDIAN_KEY = bytes((0, 4, 1, 0, 0, 0))
_COMMENT = 0
_MOST_COMMENT = 127
_PORTS_PER_MESSAGE = 250


@dataclass(frozen=True, slots=True)
class Hook:
    """Where the kernel calls a chain. `type`: filter, nat or route; the policy is accept."""

    type: str
    number: int
    priority: int


def request(kind: int, flags: int, family: TableFamily | None, body: bytes) -> bytes:
    """One request; no family means all of them."""
    number = 0 if family is None else FAMILIES[family]
    return m.message(SUBSYSTEM << 8 | kind, flags, struct.pack(">BBH", number, 0, 0) + body)


def begin() -> bytes:
    """The message that begins a batch."""
    return m.message(_BATCH_BEGIN, 0, struct.pack(">BBH", 0, 0, SUBSYSTEM))


def end() -> bytes:
    """The message that ends a batch."""
    return m.message(_BATCH_END, 0, struct.pack(">BBH", 0, 0, SUBSYSTEM))


def new_table(family: Family, table: str) -> bytes:
    """Makes a table, or switches one on again."""
    body = m.text(TABLE_NAME, table) + be32(TABLE_FLAGS, 0)
    return request(NEWTABLE, m.NLM_F_CREATE, family, body)


def delete_table(family: TableFamily, table: str) -> bytes:
    """Removes a table with everything in it."""
    return request(DELTABLE, 0, family, m.text(TABLE_NAME, table))


def flush_table(family: Family, table: str) -> bytes:
    """Removes the rules of all chains of a table; chains, sets and maps stay."""
    return request(DELRULE, 0, family, m.text(1, table))


def new_chain(family: Family, table: str, chain: str, hook: Hook | None) -> bytes:
    """Makes a chain; one with a hook gets its policy back."""
    body = m.text(1, table) + m.text(CHAIN_NAME, chain)
    if hook is not None:
        body += m.text(CHAIN_TYPE, hook.type)
        body += be32(CHAIN_POLICY, 1)
        body += m.nest(
            CHAIN_HOOK, be32(HOOK_NUMBER, hook.number), be32(HOOK_PRIORITY, hook.priority)
        )
    return request(NEWCHAIN, m.NLM_F_CREATE, family, body)


def delete_chain(family: Family, table: str, chain: str) -> bytes:
    """Removes a chain that is empty and that no rule names."""
    return request(DELCHAIN, 0, family, m.text(1, table) + m.text(CHAIN_NAME, chain))


def flush_chain(family: Family, table: str, chain: str) -> bytes:
    """Removes the rules of a chain."""
    return request(DELRULE, 0, family, m.text(1, table) + m.text(RULE_CHAIN, chain))


def delete_rule(family: Family, place: bytes, handle: bytes) -> bytes:
    """Removes one rule; `place` names table and chain, `handle` is what the kernel calls it."""
    return request(DELRULE, 0, family, place + m.attribute(RULE_HANDLE, handle))


def comment_data(comment: str) -> bytes:
    """The attribute that carries a rule's comment."""
    data = comment.encode("ascii", "replace")[:_MOST_COMMENT] + b"\0"
    return m.attribute(RULE_USERDATA, bytes((_COMMENT, len(data))) + data)


def read_comment(data: bytes) -> str:
    """The comment in a rule's user data; empty where there is none."""
    offset = 0
    while offset + 2 <= len(data):
        kind, size = data[offset], data[offset + 1]
        if kind == _COMMENT:
            return m.as_text(data[offset + 2 : offset + 2 + size])
        offset += 2 + size
    return ""


def new_rule(family: Family, place: bytes, tail: bytes) -> bytes:
    """Adds a rule at the end of a chain; `place` names table and chain."""
    return request(NEWRULE, m.NLM_F_CREATE | m.NLM_F_APPEND, family, place + tail)


def chain_place(table: str, chain: str) -> bytes:
    """The attributes that name a chain in a rule."""
    return m.text(1, table) + m.text(RULE_CHAIN, chain)


def new_set(
    family: Family,
    table: str,
    name: str,
    *,
    key_type: int,
    key_length: int,
    flags: int = 0,
    data_type: int | None = None,
    exclusive: bool = False,
) -> bytes:
    """Makes a set, or with `data_type` a map to verdicts; `exclusive`: none may be there."""
    body = m.text(1, table) + m.text(SET_NAME, name)
    body += be32(SET_FLAGS, flags | (MAP if data_type is not None else 0))
    body += be32(SET_KEY_TYPE, key_type) + be32(SET_KEY_LEN, key_length)
    if data_type is not None:
        body += be32(SET_DATA_TYPE, data_type) + be32(SET_DATA_LEN, 16)
    body += be32(SET_ID, 1)
    # For the nft program: without it names of interfaces are read from the wrong end.
    order = _HOST_ENDIAN_KEY if key_type == TYPE_INTERFACE else _BIG_ENDIAN_KEY
    body += m.attribute(SET_USERDATA, order)
    flag = m.NLM_F_EXCL if exclusive else 0
    return request(NEWSET, m.NLM_F_CREATE | flag, family, body)


def delete_set(family: Family, table: str, name: str) -> bytes:
    """Removes a set that no rule names."""
    return request(DELSET, 0, family, m.text(1, table) + m.text(SET_NAME, name))


def element(key: bytes, *, end: bool = False, data: bytes = b"") -> bytes:
    """One element of a list."""
    flags = be32(ELEMENT_FLAGS, INTERVAL_END) if end else b""
    return m.nest(1, flags, m.nest(ELEMENT_KEY, m.attribute(1, key)), data)


def change_elements(
    kind: int,
    family: Family,
    table: str,
    name: str,
    elements: Iterable[bytes],
) -> bytes:
    """Adds (NEWSETELEM) or removes (DELSETELEM) elements; they must fit one attribute."""
    body = m.text(1, table) + m.text(ELEMENTS_SET, name)
    body += m.nest(ELEMENTS, *elements)
    return request(kind, m.NLM_F_CREATE if kind == NEWSETELEM else 0, family, body)


def port_set(family: Family, table: str, ports: PortSet) -> list[bytes]:
    """Makes the set of these ports; while a rule asks it the kernel takes no other elements."""
    flags = CONSTANT | INTERVAL
    requests = [new_set(family, table, ports.name, key_type=TYPE_PORT, key_length=2, flags=flags)]
    for start in range(0, len(ports.ranges), _PORTS_PER_MESSAGE):
        some = ports.ranges[start : start + _PORTS_PER_MESSAGE]
        elements = [each for first, last in some for each in _port_range(first, last)]
        requests.append(change_elements(NEWSETELEM, family, table, ports.name, elements))
    return requests


def _port_range(first: int, last: int) -> Iterable[bytes]:
    yield element(struct.pack(">H", first))
    if last < 0xFFFF:
        yield element(struct.pack(">H", last + 1), end=True)
