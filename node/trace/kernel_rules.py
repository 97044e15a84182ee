"""Rules that traced packets met: from the kernel's handles to numbers, comments and text.

Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from libcalico.local.packet_trace import Rule
from linux import programs
from linux.errors import CommandError
from linux.nftables.connection import Connection
from linux.nftables.trace import FAMILY_NAMES, RulePlace, Step, places
from node.trace import heads

OURS = "cali-"
_TIMEOUT = 10.0


class Rules:
    """Names the rules of the steps of one watch. `interface` gives the name of an index."""

    def __init__(self, interface: Callable[[int], str]) -> None:
        self._interface = interface
        self._places: dict[tuple[int, str, str], dict[int, RulePlace]] = {}
        self._texts: dict[tuple[str, str, str], dict[int, str]] = {}
        self._same: dict[int, str] = {}
        self._connection = Connection()
        self._order = 0

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def rule(self, step: Step) -> Rule:
        """A step as it is told."""
        head = None
        if step.network:
            head = heads.read(step.network + step.transport)
            if head is not None:
                self._same[step.packet] = head.same
        chain = (step.family, step.table, step.chain)
        if chain not in self._places:
            self._places[chain] = places(self._connection, *chain)
        place = self._places[chain].get(step.handle) if step.kind == "rule" else None
        family = FAMILY_NAMES.get(step.family, str(step.family))
        self._order += 1
        text = ""
        if step.kind == "rule" and OURS not in step.chain:
            text = self._text(family, step)
        return Rule(
            self._order,
            step.packet,
            family,
            step.table,
            step.chain,
            step.kind,
            step.verdict,
            step.target,
            0 if place is None else place.number,
            "" if place is None else place.comment,
            text,
            self._interface(step.iif),
            self._interface(step.oif),
            self._same.get(step.packet, ""),
            head,
        )

    def _text(self, family: str, step: Step) -> str:
        """A rule of others as the nft program writes it; empty where that is not installed."""
        chain = (family, step.table, step.chain)
        if chain not in self._texts:
            self._texts[chain] = _listed(*chain)
        return self._texts[chain].get(step.handle, "")


def _listed(family: str, table: str, chain: str) -> dict[int, str]:
    command = ["nft", "-a", "list", "chain", family, table, chain]
    try:
        listed = asyncio.run(programs.run(command, limit=_TIMEOUT))
    except CommandError:
        return {}
    return handles(listed.decode(errors="replace"))


def handles(text: str) -> dict[int, str]:
    """The rules of a listing by their handles. Pure."""
    listed = re.findall(r"^\s*(.+?) # handle (\d+)$", text, re.MULTILINE)
    return {int(handle): rule for rule, handle in listed if not rule.endswith("{")}
