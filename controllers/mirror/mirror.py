"""One kind of Kubernetes objects, kept equal to one family of resources in the datastore.

Both sides are followed: the API (list, then watch) says what is wanted, the datastore what is
there. A name whose two sides differ goes to the queue; a worker reads the stored object afresh,
decides, and writes guarded by its revision. Every `period` all names are compared again.

Invariants (tests/controllers/test_mirrors.py, test_decide.py):
  MIR-1  Nothing is written where the stored spec is equal to the wanted one, nor after a restart.
  MIR-2  Nothing is deleted before both sides were read whole, nor while an object of the API
         that may be its source cannot be read.
  MIR-3  What does not carry the names of this family is never touched, and of what does only
         the spec is written: labels and annotations of others survive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from controllers.queue import WorkQueue
from libcalico.conversion import Conversion
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.datastore.syncer import Syncer
from libcalico.errors import InvalidValue, MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import NAMELESS
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object, Resource
from libcalico.kubernetes.reflector import Reflector
from libcalico.model.defaults import apply_defaults
from libcalico.model.keys import ResourceKey

T = TypeVar("T", bound=Object)
log = logging.getLogger(__name__)

PERIOD = 300.0
"""Seconds between two comparisons of everything (reconcilerPeriod)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The object exists and says nothing that can be written: what is stored stays."""

    reason: str


class Mirrored(Protocol):
    """A resource that is compared by its spec."""

    @property
    def spec(self) -> object: ...


Wanted = Mirrored | Kept | None
"""A resource, `Kept`, or None: it is to be gone."""


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """The mirrored objects: `convert` gives the resource, or None to leave the stored one.

    `owned` selects what this controller alone writes; `key` names an object's resource.
    """

    name: str
    resource: Resource[T]
    convert: Callable[[T], Conversion | None]
    key: Callable[[Name], ResourceKey]
    owned: Selection


def decide(key: ResourceKey, desired: Wanted, stored: Entry | None) -> Change | None:
    """The change to write, or None. Pure."""
    if isinstance(desired, Kept):
        return None
    if desired is None:
        return Delete(key, stored.revision) if stored else None
    if stored is None:
        return Put(key, desired, ABSENT)
    if stored.value.spec == desired.spec and not stored.broken:
        return None
    return Put(key, replace(stored.value, spec=desired.spec), stored.revision, stored)


class Mirror(Generic[T]):
    """Keeps a family equal while `run` runs. `writes` counts what it wrote."""

    def __init__(
        self,
        family: Family[T],
        client: Client,
        store: Datastore,
        *,
        workers: int = 1,
        period: float = PERIOD,
    ) -> None:
        self.name = family.name
        self._family, self._store = family, store
        self._workers, self._period = workers, period
        self._wanted: dict[ResourceKey, Wanted] = {}
        self._stored: dict[ResourceKey, object] = {}
        self._stored_whole = False
        self._ready = asyncio.Event()
        self.queue: WorkQueue[ResourceKey] = WorkQueue()
        self.reflector = Reflector(client, family.resource, self)
        self.writes = self.failures = 0

    @property
    def in_sync(self) -> bool:
        """Whether both sides were read whole, and nothing waits."""
        return self._ready.is_set() and not len(self.queue)

    @property
    def ready(self) -> bool:
        """Whether both sides were read whole."""
        return self._ready.is_set()

    # -- what the API says (the reflector's sink) -----------------------------------------------

    def put(self, name: Name, value: T) -> None:
        """Store an object."""
        key = self._family.key(name)
        try:
            conversion = self._family.convert(value)
        except InvalidValue as problem:
            log.error("left as it is stored: %s", problem, extra={"object": str(name)})
            self._wanted[key] = Kept(str(problem))
            return
        if conversion is None:
            self._wanted[key] = Kept("it is ending")
            return
        for dropped in conversion.dropped:
            log.warning("a rule is left out: %s", dropped, extra={"object": str(name)})
        self._wanted[key] = apply_defaults(conversion.resource)
        self._look(key)

    def gone(self, name: Name) -> None:
        """Remove it."""
        key = self._family.key(name)
        self._wanted.pop(key, None)
        self._look(key)

    def listed(self) -> None:
        """Everything has been told."""
        self._maybe_ready()

    # -- both sides together -------------------------------------------------------------------

    async def run(self) -> None:
        """Follow both sides and write, until cancelled."""
        beside = self.reflector.run(), self._follow(), self._resync()
        await self.queue.serve(self._settle, *beside, workers=self._workers, after=self._ready)

    async def _follow(self) -> None:
        syncer = Syncer(self._store, [self._family.owned])
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for update in batch.updates:
                    key = update.key
                    assert isinstance(key, ResourceKey)
                    if update.entry is None:
                        self._stored.pop(key, None)
                    else:
                        # A broken policy is written anew, even if parts of it could be kept.
                        entry = update.entry
                        self._stored[key] = None if entry.broken else entry.value.spec
                    self._look(key)
                if batch.in_sync and not self._stored_whole:
                    self._stored_whole = True
                    self._maybe_ready()

    def _maybe_ready(self) -> None:
        if self._stored_whole and self.reflector.has_listed and not self._ready.is_set():
            self._ready.set()
            self._compare()

    def _compare(self) -> None:
        for key in self._wanted.keys() | self._stored.keys():
            self._look(key)

    def _look(self, key: ResourceKey) -> None:
        if self._ready.is_set() and self._differs(key):
            self.queue.add(key)

    def _differs(self, key: ResourceKey) -> bool:
        desired = self._wanted_of(key)
        if desired is None or key not in self._stored:
            return desired is not None or key in self._stored
        return not isinstance(desired, Kept) and desired.spec != self._stored[key]

    def _wanted_of(self, key: ResourceKey) -> Wanted:
        desired = self._wanted.get(key)
        broken = self.reflector.broken
        if desired is not None or not broken:
            return desired
        if NAMELESS in broken or any(self._family.key(name) == key for name in broken):
            return Kept("its source cannot be read")
        return None

    async def _resync(self) -> None:
        await self._ready.wait()
        while True:
            await asyncio.sleep(self._period)
            self._compare()

    async def _settle(self, key: ResourceKey) -> bool:
        if not self._differs(key):
            return True
        try:
            change = await self._change(key)
            if change is None:
                return True
            await self._store.commit([change])
        except CommitConflict:
            return False
        except MuslinError as error:
            self.failures += 1
            log.warning("not written, tried again: %s", error, extra={"object": str(key)})
            return False
        self.writes += 1
        log.info("deleted" if isinstance(change, Delete) else "written", extra={"object": str(key)})
        return True

    async def _change(self, key: ResourceKey) -> Change | None:
        try:
            stored = await self._store.get(key)
        except InvalidValue:
            # Unreadable bytes under our own name are replaced, of any writer.
            desired = self._wanted_of(key)
            if isinstance(desired, Kept):
                return None
            return Delete(key) if desired is None else Put(key, desired)
        return decide(key, self._wanted_of(key), stored)
