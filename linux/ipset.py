"""IP sets over nfnetlink, in process: no ipset(8), thousands of members in one send.

A member is text in ipset's own spelling, canonical: "10.0.0.0/26" (hash:net; a host is
"10.0.0.1" without /32), "10.0.0.1" (hash:ip), "10.0.0.1,tcp:80" (hash:ip,port).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

SetType = Literal["hash:ip", "hash:net", "hash:ip,port"]


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A set as the kernel has it. `family` is 4 or 6."""

    name: str
    type: str
    family: int
    maxelem: int
    references: int
    entries: int


class IPSets:
    """A connection to the kernel's sets in the current network namespace. Blocking, quick."""

    def __init__(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> IPSets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def create(self, name: str, type: SetType, family: Literal[4, 6], maxelem: int = 1 << 20) -> None:
        """Makes a set; fine if an equal one exists. Raises `KernelError`."""
        raise NotImplementedError

    def destroy(self, name: str) -> None:
        """Removes a set; fine if it is gone. Raises `KernelError` (EBUSY: a rule uses it)."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """The names of all sets."""
        raise NotImplementedError

    def info(self, name: str) -> SetInfo | None:
        """What the kernel says of a set, None if there is none."""
        raise NotImplementedError

    def members(self, name: str) -> set[str]:
        """All members in canonical spelling. Raises `KernelError` (ENOENT)."""
        raise NotImplementedError

    def add(self, name: str, members: Iterable[str]) -> None:
        """Adds members, those already present are fine. Raises `KernelError` naming the member."""
        raise NotImplementedError

    def delete(self, name: str, members: Iterable[str]) -> None:
        """Deletes members, those already gone are fine."""
        raise NotImplementedError


def canonical_member(member: str, type: SetType) -> str:
    """The spelling the kernel reads back. Raises `ValueError`."""
    raise NotImplementedError
