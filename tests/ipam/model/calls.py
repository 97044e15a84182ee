"""Store calls that wait until the explorer lets them happen, or fail.

Every call of a modelled process stands in one list. Delivering it is one step; its fate is
the explorer's: it happens, is lost, happens though its caller hears an error, or hangs and
happens much later (a datastore that was asleep).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from libcalico.datastore.interface import Change, Datastore, Entry, Listing, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import Key

OK, LOST, ANSWER_LOST, LATE = "ok", "lost", "answer lost", "late"


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


@dataclass(eq=False)
class Call:
    """One store operation under way. `who` is the process, `purpose` its part."""

    who: Any
    purpose: str
    name: str
    begin: Callable[[], Coroutine[Any, Any, Any]]
    future: asyncio.Future[Any]
    changes: Sequence[Change] = ()
    looked: Any = None
    unheard: Exception | None = None

    def happen(self) -> None:
        """The store does it, and the caller hears what came of it."""
        try:
            result = at_once(self.begin())
        except Exception as error:
            self._answer(error=error)
        else:
            self._answer(result)

    def happen_unheard(self) -> None:
        """The store does it; nobody hears."""
        try:
            at_once(self.begin())
        except AssertionError:
            raise
        except Exception as error:
            # The caller never learns of it, whatever it is.
            self.unheard = error

    def fail(self) -> None:
        """The caller hears that the datastore does not answer."""
        self._answer(error=DatastoreUnavailable("no answer"))

    def _answer(self, result: Any = None, error: Exception | None = None) -> None:
        if isinstance(error, AssertionError):
            raise error
        if self.future.done():
            return
        if error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class SteppedStore:
    """Implements `Datastore` for one process; `submit` hands each call to the explorer."""

    def __init__(self, real: Datastore, who: Any, purpose: str, loop: Any, submit: Any) -> None:
        self._real, self._who, self._purpose = real, who, purpose
        self._loop, self._submit = loop, submit

    async def _call(
        self,
        name: str,
        begin: Callable[[], Coroutine[Any, Any, Any]],
        changes: Sequence[Change] = (),
    ) -> Any:
        if not self._who.alive:
            raise DatastoreUnavailable("the process is dead")
        call = Call(
            self._who, self._purpose, name, begin, self._loop.create_future(), tuple(changes)
        )
        self._submit(call)
        return await call.future

    async def get(self, key: Key) -> Entry | None:
        found: Entry | None = await self._call("get", lambda: self._real.get(key))
        return found

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        wanted = list(keys)
        found: dict[Key, Entry | None] = await self._call(
            "get_many", lambda: self._real.get_many(wanted)
        )
        return found

    async def list(self, selection: Selection) -> Listing:
        found: Listing = await self._call(
            f"list {selection.family}", lambda: self._real.list(selection)
        )
        return found

    async def commit(self, changes: Sequence[Change]) -> int:
        made = tuple(changes)
        revision: int = await self._call("commit", lambda: self._real.commit(made), made)
        return revision

    def watch(self, selections: Sequence[Selection], revision: int) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass
