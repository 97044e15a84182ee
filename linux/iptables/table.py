"""One iptables table of one family: cached actual state, commit of what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from linux.iptables.detect import Backend
from linux.iptables.hashes import HashScheme
from linux.iptables.plan import Desired


@dataclass(frozen=True, slots=True)
class Report:
    """What a commit did. `drift` names what a dump found different from our last write."""

    chains_written: tuple[str, ...] = ()
    chains_deleted: tuple[str, ...] = ()
    kernel_chains_edited: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    lines: int = 0
    saves: int = 0
    restores: int = 0


class Table:
    """One table (`raw`, `mangle`, `nat`, `filter`) of one family (4 or 6)."""

    def __init__(
        self,
        name: str,
        family: Literal[4, 6],
        backend: Backend,
        scheme: HashScheme,
        *,
        lock_wait: int = 10,
    ) -> None:
        raise NotImplementedError

    async def refresh(self) -> tuple[str, ...]:
        """Dumps the table (one iptables-save); returns the chains that drifted since our write."""
        raise NotImplementedError

    async def commit(self, desired: Desired, *, refresh: bool = False) -> Report:
        """Makes the table as desired with at most one restore; none when nothing differs.

        The first commit, one after an error and one with `refresh=True` dump before they
        compare. Raises `CommandError` when the restore still fails after retries.
        """
        raise NotImplementedError

    def matches(self, desired: Desired) -> bool:
        """Whether the cached actual state equals `desired` (no exec)."""
        raise NotImplementedError
