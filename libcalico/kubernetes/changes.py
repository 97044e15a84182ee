"""A reflector's changes as an iterator: batches, coalesced by object.

For consumers that wait with `async for`; those that only keep a table give the reflector a sink.
Tested in tests/apiserver/test_reflector.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """The last state of each object that changed, None for those that are gone.

    `complete`: the list has been told whole, with this batch or an earlier one.
    """

    changes: dict[Name, T | None]
    complete: bool


class Changes(Generic[T]):
    """A sink that is iterated. A slow consumer costs memory by objects, not by changes."""

    def __init__(self) -> None:
        self._waiting: dict[Name, T | None] = {}
        self._complete = False
        self._wake = asyncio.Event()

    def put(self, name: Name, value: T) -> None:
        """An object is so now."""
        self._waiting[name] = value
        self._wake.set()

    def gone(self, name: Name) -> None:
        """It is gone."""
        self._waiting[name] = None
        self._wake.set()

    def listed(self) -> None:
        """All have been told."""
        self._complete = True
        self._wake.set()

    async def batches(self) -> AsyncIterator[Batch[T]]:
        """What changed since the batch before; for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changes, self._waiting = self._waiting, {}
            yield Batch(changes, self._complete)
