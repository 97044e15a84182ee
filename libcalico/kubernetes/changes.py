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

    `complete`: the whole list has been reported, with this batch or an earlier one.
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
        """Receive the present state of an object."""
        self._waiting[name] = value
        self._wake.set()

    def gone(self, name: Name) -> None:
        """Note that an object is gone."""
        self._waiting[name] = None
        self._wake.set()

    def listed(self) -> None:
        """Note that the list is complete."""
        self._complete = True
        self._wake.set()

    async def batches(self) -> AsyncIterator[Batch[T]]:
        """The changes since the batch before, without end."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changes, self._waiting = self._waiting, {}
            yield Batch(changes, self._complete)
