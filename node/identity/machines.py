"""A machine and its life sign, as values.

Tested in tests/node/test_life.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine. `network` is its network namespace, because some nodes share a kernel."""

    boot: str
    network: int
    host: str
    addresses: tuple[str, ...]

    def __str__(self) -> str:
        return describe(self.host, self.boot, self.addresses)


@dataclass(frozen=True, slots=True)
class Life:
    """A life sign of a machine; `beat` is another one each time.

    `left`: whole seconds until the sign ends; more than before is a beat, too. 0: not known.
    `whole`: machine and beat were written at once; else the machine may be an earlier one.
    `vouched`: another program says that the machine lives, without a beat.
    """

    ours: bool
    beat: str
    shown: str
    interval: float
    whole: bool = True
    vouched: bool = False
    left: int = 0


def describe(host: str, boot: str, addresses: Iterable[str]) -> str:
    """A machine, as an operator reads of it."""
    shown = ", ".join(addresses) or "none"
    return f"host {host or 'unknown'}, addresses {shown}, boot id {boot or 'unknown'}"
