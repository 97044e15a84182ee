"""What one of our tables holds, read from the kernel: hashes of rules, hooks, map elements.

Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family
from linux.nftables.messages import Hook
from linux.nftables.port_sets import PORT_SET_PREFIX
from linux.nftables.rules import hash_in


@dataclass(slots=True)
class Actual:
    """One table as the kernel has it.

    `enabled`: it exists and is not dormant. `chains`: hook and the hashes of the rules, "" for a
    rule without one. `maps`: interface -> chain, of every map. `port_sets`: names.
    """

    enabled: bool = False
    chains: dict[str, tuple[Hook | None, tuple[str, ...]]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    port_sets: set[str] = field(default_factory=set)


def read_tables(
    connection: Connection, families: Iterable[Family], table: str
) -> dict[Family, Actual]:
    """The tables of this name. Raises `KernelError`; one that does not exist is empty."""
    return {family: _read_table(connection, family, table) for family in families}


def _read_table(connection: Connection, family: Family, table: str) -> Actual:
    flags = connection.table_flags(family, table)
    if flags is None:
        return Actual()
    hooks: dict[str, Hook | None] = {}
    for attributes in connection.objects(messages.GETCHAIN, family, table):
        hooks[m.as_text(attributes[messages.CHAIN_NAME])] = _hook(attributes)
    hashes: dict[str, list[str]] = {name: [] for name in hooks}
    for attributes in connection.objects(messages.GETRULE, family, table):
        chain = m.as_text(attributes[messages.RULE_CHAIN])
        comment = messages.read_comment(attributes.get(messages.RULE_USERDATA, b""))
        hashes.setdefault(chain, []).append(hash_in(comment))
    maps: dict[str, dict[str, str]] = {}
    port_sets = set()
    for attributes in connection.objects(messages.GETSET, family, table):
        bits = int.from_bytes(attributes.get(messages.SET_FLAGS, b""), "big")
        name = m.as_text(attributes[messages.SET_NAME])
        if bits & messages.ANONYMOUS:
            continue
        if bits & messages.MAP:
            maps[name] = dict(map(_entry, connection.elements(family, table, name)))
        elif name.startswith(PORT_SET_PREFIX):
            port_sets.add(name)
    return Actual(
        not flags & 1,
        {name: (hooks.get(name), tuple(each)) for name, each in hashes.items()},
        maps,
        port_sets,
    )


def _hook(attributes: m.Attributes) -> Hook | None:
    if messages.CHAIN_HOOK not in attributes:
        return None
    inside = m.parse_attributes(attributes[messages.CHAIN_HOOK])
    priority = int.from_bytes(inside[messages.HOOK_PRIORITY], "big", signed=True)
    kind = m.as_text(attributes.get(messages.CHAIN_TYPE, b""))
    accepts = int.from_bytes(attributes.get(messages.CHAIN_POLICY, b"\1"), "big") == 1
    # A chain whose policy was changed gets a hook that no desired chain has.
    return Hook(
        kind if accepts else f"{kind}, policy drop",
        int.from_bytes(inside[messages.HOOK_NUMBER], "big"),
        priority,
    )


def _entry(attributes: m.Attributes) -> tuple[str, str]:
    key = m.parse_attributes(attributes[messages.ELEMENT_KEY])
    data = m.parse_attributes(attributes.get(messages.ELEMENT_DATA, b""))
    verdict = m.parse_attributes(data.get(2, b""))
    return m.as_text(key[1]), m.as_text(verdict.get(2, b""))


def read_counters(
    connection: Connection, family: Family, table: str, chains: Collection[str]
) -> dict[str, list[tuple[int, int, str]]]:
    """(packets, bytes, comment) of each rule of these chains. Raises `KernelError`."""
    counters: dict[str, list[tuple[int, int, str]]] = {}
    for chain in chains:
        for rule in connection.rules(family, table, chain):
            comment = messages.read_comment(rule.get(messages.RULE_USERDATA, b""))
            packed = rule.get(messages.RULE_EXPRESSIONS, b"")
            counters.setdefault(chain, []).append((*_counted(packed), comment))
    return counters


def _counted(packed: bytes) -> tuple[int, int]:
    for _, data in m.iterate_attributes(packed):
        expression = m.parse_attributes(data)
        if m.as_text(expression.get(1, b"")) == "counter":
            inside = m.parse_attributes(expression.get(2, b""))
            octets, packets = (int.from_bytes(inside.get(n, b""), "big") for n in (1, 2))
            return packets, octets
    return 0, 0
