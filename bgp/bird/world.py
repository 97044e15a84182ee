"""What the commands of BIRD are answered from: protocols and routes.

Tested in tests/bgp/test_birdctl.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol as Shape

from bgp.speaker.interface import IPNetwork


@dataclass(frozen=True, slots=True)
class ProtocolState:
    """One protocol as it is shown."""

    name: str
    kind: str
    state: str
    since: datetime
    info: str
    table: str = "master"
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownRoute:
    """One path: `target` is unicast or blackhole; `details` are lines of `all`, code and text."""

    prefix: IPNetwork
    protocol: str
    since: datetime
    target: str = "unicast"
    sender: str = ""
    hops: tuple[tuple[str, str], ...] = ()
    primary: bool = True
    preference: int = 100
    mark: str = ""
    details: tuple[tuple[int, str], ...] = ()


class World(Shape):
    """The state to show, of one family. No method may take long."""

    version: str
    family: int

    def now(self) -> datetime: ...
    def status(self) -> Iterable[tuple[str, str]]:
        """Words and values of `show status`."""

    def recovering(self) -> str:
        """The text of what graceful restart still waits for, else empty."""

    def protocols(self, details: bool) -> list[ProtocolState]: ...
    def prefixes(self) -> list[IPNetwork]: ...
    def routes(self, prefix: IPNetwork, details: bool = False) -> list[ShownRoute]:
        """The paths of a prefix, the best first."""

    def exported(self, protocol: str, prefix: IPNetwork) -> bool:
        """Whether a prefix is announced to the peer of a protocol."""
