"""What the chains are told to, a table of a family, and the chains that lead to endpoints there.

Tested in tests/felix/dataplane/test_chain_store.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from felix.rules.model import Chain, Rule
from libcalico.conversion.traffic_limits import ChainLimits

Family = Literal[4, 6]
Place = tuple[int, str]
"""A family (4 or 6) and one of its tables, by name."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The families in which an endpoint has chains, and what these limit."""

    families: frozenset[int]
    limits: ChainLimits | None = None


NOWHERE = Extent(frozenset())


class ChainTarget(Protocol):
    """What is told: one table of one family."""

    def want(self, chain: Chain) -> None:
        """A chain, whole."""

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Render these rules ahead, in steps: the next chain that holds them finds it done."""

    def unwant(self, name: str) -> None:
        """This chain is no longer wanted."""


class Dispatch(Protocol):
    """The chains from an interface to its endpoint; `felix.rules.dispatch.Bins` is one."""

    def add(self, interface: str) -> list[Chain]:
        """An endpoint came: the chains that differ now, whole."""

    def remove(self, interface: str) -> tuple[list[Chain], list[str]]:
        """An endpoint left: the chains that differ now, and the names of those that are gone."""

    def all(self) -> list[Chain]:
        """Every chain."""
