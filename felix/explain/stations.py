"""The stations of a packet's way, where policy may decide, and the answer that they make.

Tested in tests/felix/explain/test_explain.py, test_random.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from felix.explain.ends import End
from felix.explain.flow import Packet
from felix.explain.walk import Ruling

NORMAL, UNTRACKED, PRE_DNAT, FORWARD, HOST = "normal", "untracked", "preDNAT", "forward", "host"
TABLES = {NORMAL: "filter", UNTRACKED: "raw", PRE_DNAT: "mangle", FORWARD: "filter", HOST: "filter"}
"""The table of the kernel where each stage is decided."""


@dataclass(frozen=True, slots=True)
class Station:
    """A place where something may decide. `sure`: the packet comes by here in any case."""

    ingress: bool
    end: End
    stage: str
    ruling: Ruling
    sure: bool = True
    interface: str = ""

    @property
    def direction(self) -> str:
        """`ingress` or `egress`, as the end sees it."""
        return "ingress" if self.ingress else "egress"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer; `stations` end where the packet is dropped."""

    packet: Packet
    allowed: bool
    stations: tuple[Station, ...]
    notes: tuple[str, ...] = ()
    certain: bool = True

    @property
    def decider(self) -> Station | None:
        """The station that dropped the packet; None where it is allowed."""
        return next((s for s in self.stations if s.sure and s.ruling.allowed is False), None)
