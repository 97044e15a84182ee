"""Where the rules of this node lie: nftables, iptables over nftables, or iptables of old.

Tested in tests/trace/test_trace_backends.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from libcalico.local.packet_trace import Rule
from linux.errors import KernelError
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
_LINE = re.compile(r"\[(\d+):\d+\] -A (\S+) (.*)")
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
    program = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return ""
    done = subprocess.run([program, "-c"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout


def moved(before: str, after: str, family: Family) -> list[Rule]:
    """The rules of felix whose counts rose between two saves, as told lines. Pure.

    Others than those of the traced packets may have moved them.
    """
    was = _counts(before)
    moved_rules: list[Rule] = []
    for (table, chain, number), (packets, text) in _counts(after).items():
        if packets <= was.get((table, chain, number), (0, ""))[0] or not chain.startswith("cali-"):
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


def _counts(text: str) -> dict[tuple[str, str, int], tuple[int, str]]:
    table, numbers, counts = "", dict[str, int](), {}
    for line in text.splitlines():
        if line.startswith("*"):
            table, numbers = line[1:], {}
        if moved_rules := _LINE.fullmatch(line):
            packets, chain, rule = moved_rules.groups()
            numbers[chain] = numbers.get(chain, 0) + 1
            counts[table, chain, numbers[chain]] = (int(packets), rule)
    return counts
