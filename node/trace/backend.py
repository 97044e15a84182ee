"""Where the rules of this node lie: nftables, iptables over nftables, or iptables of old.

Tested in tests/trace/test_trace_backends.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from libcalico.local.packet_trace import Rule
from linux import programs
from linux.errors import CommandError, KernelError
from linux.iptables.save import parse_counters
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family

Backend = Literal["nftables", "iptables-nft", "iptables-legacy", ""]
NFTABLES: Backend = "nftables"
IPTABLES_NFT: Backend = "iptables-nft"
IPTABLES_LEGACY: Backend = "iptables-legacy"
LEGACY_SAYS = (
    "iptables-legacy does not tell which rules a packet meets; counts that moved are shown"
)
_PRESENT = {4: Path("/proc/net/ip_tables_names"), 6: Path("/proc/net/ip6_tables_names")}
_TABLE = re.compile(r"^\*(\S+)", re.MULTILINE)
_TARGET = re.compile(r"-[jg] (\S+)")
_COMMENT = re.compile(r'--comment "?((?:cali:)[^" ]+)"?')


def backend(family: Family) -> Backend:
    """Which tables hold felix's chains; empty where none does. Raises `KernelError`."""
    with Connection() as connection:
        if connection.table_flags(family, "calico") is not None:
            return NFTABLES
        try:
            chains = connection.objects(messages.GETCHAIN, family, "filter")
        except KernelError:
            chains = []
    names = {m.as_text(chain[messages.CHAIN_NAME]) for chain in chains}
    if "cali-FORWARD" in names:
        return IPTABLES_NFT
    return IPTABLES_LEGACY if ":cali-FORWARD " in legacy_rules(family) else ""


def legacy_rules(family: Family) -> str:
    """What iptables-legacy-save prints with counts; empty where no such table is loaded."""
    try:
        if "filter" not in _PRESENT[family].read_text().split():
            return ""
    except OSError:
        return ""
    name = "iptables-legacy-save" if family == 4 else "ip6tables-legacy-save"
    try:
        return asyncio.run(programs.run([name, "-c"])).decode(errors="replace")
    except CommandError:
        return ""


def moved(before: str, after: str, family: Family) -> list[Rule]:
    """The rules of felix whose counts rose between two saves, as told lines. Pure.

    Others than those of the traced packets may have moved them.
    """
    moved_rules: list[Rule] = []
    for table, chain, number, text in _risen(before, after):
        if not chain.startswith("cali-"):
            continue
        target, comment = _TARGET.search(text), _COMMENT.search(text)
        moved_rules.append(
            Rule(
                len(moved_rules) + 1,
                0,
                "ip" if family == 4 else "ip6",
                table,
                chain,
                "counted",
                target[1].lower() if target and target[1].isupper() else "jump",
                "" if target is None or target[1].isupper() else target[1],
                number,
                "" if comment is None else comment[1],
                text,
            )
        )
    return moved_rules


def _risen(before: str, after: str) -> Iterator[tuple[str, str, int, str]]:
    """Table, chain, number and text of each rule whose count of packets rose."""
    for table in _TABLE.findall(after):
        was = parse_counters(before, table)
        for chain, rules in parse_counters(after, table).items():
            earlier = was.get(chain, [])
            for number, (packets, _, text) in enumerate(rules, 1):
                if packets > (earlier[number - 1][0] if number <= len(earlier) else 0):
                    yield table, chain, number, text
