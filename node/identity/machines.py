"""A machine and its life sign, as values: who lives under a node's name.

Tested in tests/node/test_life.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine: its boot, its network namespace (some nodes share a kernel), and its looks."""

    boot: str
    network: int
    host: str
    addresses: tuple[str, ...]

    def __str__(self) -> str:
        return told(self.host, self.boot, self.addresses)


@dataclass(frozen=True, slots=True)
class Life:
    """A life sign of some machine: `beat` is another one each time.

    `whole`: machine and beat were written at once; else the machine may be the one before.
    `vouched`: another program says that it lives, without a beat.
    """

    ours: bool
    beat: str
    told: str
    interval: float
    whole: bool = True
    vouched: bool = False


def told(host: str, boot: str, addresses: Iterable[str]) -> str:
    """A machine, for an operator."""
    shown = ", ".join(addresses) or "none"
    return f"host {host or 'unknown'}, addresses {shown}, boot id {boot or 'unknown'}"
