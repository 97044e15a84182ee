"""A store that tells as etcd does: one revision, transactions, watches that may be compacted.

Values are bytes in Calico's layout, written and read by the real codec, so that unknown fields,
values that cannot be read and raw rows are as with etcd. A watch hands over what happened in pieces
of any size, late by any while, never out of order; it breaks off when the way is cut.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from libcalico.datastore import built_in
from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.entries import collect, decode, entry_of
from libcalico.datastore.interface import (
    ABSENT,
    Batch,
    Change,
    CommitConflict,
    Compacted,
    Delete,
    Entry,
    Event,
    LeaseEnded,
    Listing,
    Put,
    Selection,
)
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.model import codec
from libcalico.model.base.meta import stamp
from libcalico.model.keys import Key, ResourceKey
from tests.simulation.stores.weather import Waiting, Weather, wake

HOLD_MOST = 0.05


@dataclass
class Database:
    """What is stored. `log` hears of each change.

    `leases` are the lives of those that are granted: seconds, and when they end. `leased` names the
    lease of each path that has one.
    """

    log: Callable[[str], None] = lambda text: None
    values: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    revision: int = 1
    history: list[tuple[int, str, bytes | None]] = field(default_factory=list)
    compacted: int = 0
    waiting: Waiting = field(default_factory=dict)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)
    leased: dict[str, int] = field(default_factory=dict)
    granted: int = 0

    def write(self, changes: dict[str, bytes | None]) -> int:
        """One transaction: new values, None for what goes. Returns its revision."""
        self.revision += 1
        for path, raw in changes.items():
            if raw is None:
                if self.values.pop(path, None) is None:
                    continue
            else:
                self.values[path] = raw, self.revision
            self.history.append((self.revision, path, raw))
            self.log(f"etcd {self.revision} {path} {raw!r}")
        wake(self.waiting)
        return self.revision

    def put(self, key: Key, raw: bytes) -> int:
        """Write bytes, as etcdctl would."""
        return self.write({keys.path_of(key): raw})

    def delete(self, key: Key) -> int:
        """Delete, as etcdctl would."""
        return self.write({keys.path_of(key): None})

    def expire(self, path: str, revision: int) -> None:
        """A lease ends: what was written with it goes, if it is still that."""
        if self.values.get(path, (b"", 0))[1] == revision:
            self.write({path: None})

    def grant(self, ttl: int) -> int:
        """A new lease, which ends by itself with what was written under it."""
        self.granted = number = self.granted + 1
        self.keep(number, ttl)
        self._watch_over(number)
        return number

    def keep(self, number: int, ttl: int) -> None:
        """A lease lives that long from now on."""
        self.leases[number] = ttl, asyncio.get_running_loop().time() + ttl

    def _watch_over(self, number: int) -> None:
        loop, (_, ends) = asyncio.get_running_loop(), self.leases[number]
        if loop.time() < ends:
            loop.call_at(ends, self._watch_over, number)
            return
        del self.leases[number]
        for path in [path for path, lease in self.leased.items() if lease == number]:
            del self.leased[path]
            self.write({path: None})

    def after(self, revision: int) -> list[tuple[int, str, bytes | None]]:
        """What happened after a revision."""
        return self.history[bisect_right(self.history, revision, key=lambda event: event[0]) :]

    def compact(self) -> None:
        """Forget the history before now."""
        self.compacted = self.revision
        self.history.clear()
        wake(self.waiting)

    def get(self, key: Key) -> bytes | None:
        """What is stored."""
        found = self.values.get(keys.path_of(key))
        return found[0] if found else None


class EtcdStore:
    """`interface.Datastore` of one client."""

    prompt = True

    def __init__(self, database: Database, weather: Weather) -> None:
        self._database, self.weather = database, weather
        self._held_since = self._held_until = 0.0

    async def _ask(self) -> None:
        await self.weather.travel()
        if self.weather.away:
            await asyncio.sleep(2.0)
            raise DatastoreUnavailable("no etcd endpoint answered (simulated)")

    async def _answered(self) -> None:
        await self.weather.travel()
        if self.weather.away:
            await asyncio.sleep(2.0)
            raise DatastoreUnavailable("no etcd endpoint answered (simulated)")

    async def get(self, key: Key) -> Entry | None:
        """One object."""
        return (await self.get_many([key]))[key]

    async def get_many(self, wanted: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several at one revision."""
        await self._ask()
        found = {key: self._entry(key) for key in wanted}
        await self._answered()
        return found

    def _entry(self, key: Key, tolerant: bool = False) -> Entry | None:
        if key == built_in.KEY:
            return built_in.entry()
        stored = self._database.values.get(keys.path_of(key))
        if stored is None:
            return None
        try:
            return decode(key, *stored)
        except InvalidValue:
            if not tolerant:
                raise
            return Entry(key, None, stored[1], stored[0])

    async def list(self, selection: Selection) -> Listing:
        """All of a selection at one revision."""
        await self._ask()
        listing = Listing([], self._database.revision, [])
        for path, (raw, revision) in sorted(self._database.values.items()):
            if _selected(selection, path) is not None:
                collect(selection, path.encode(), raw, revision, listing)
        if built_in.is_selected(selection):
            listing.entries.append(built_in.entry())
        await self._answered()
        return listing

    async def commit(self, changes: Sequence[Change]) -> int:
        """All or nothing."""
        await self._ask()
        if any(isinstance(c, Put) and c.lease not in (0, *self._database.leases) for c in changes):
            raise LeaseEnded("etcd has no such lease any more (simulated)")
        wrong: dict[Key, Entry | None] = {}
        for change in changes:
            if change.guard is None:
                continue
            stored = self._database.values.get(keys.path_of(change.key))
            if (stored[1] if stored else ABSENT) != change.guard:
                wrong[change.key] = None
        if wrong:
            found = {c.key: self._entry(c.key, True) for c in changes if c.guard is not None}
            await self._answered()
            raise CommitConflict(found)
        revision = self._database.write(dict(map(_operation, filter(_writes, changes))))
        for change in changes:
            path = keys.path_of(change.key)
            if _writes(change):
                self._database.leased.pop(path, None)
            if isinstance(change, Put) and change.lease:
                self._database.leased[path] = change.lease
            if isinstance(change, Put) and change.ttl:
                loop = asyncio.get_running_loop()
                loop.call_later(change.ttl, self._database.expire, path, revision)
        await self._answered()
        if self.weather.loses_the_answer():
            raise DatastoreUnavailable("it may or may not have happened (simulated)")
        return revision

    async def grant(self, ttl: int) -> int:
        """A new lease."""
        await self._ask()
        lease = self._database.grant(ttl)
        await self._answered()
        return lease

    async def keep_alive(self, lease: int) -> bool:
        """Its time begins anew, if there is such a lease."""
        await self._ask()
        known = self._database.leases.get(lease)
        if known:
            self._database.keep(lease, known[0])
        await self._answered()
        return known is not None

    async def seconds_left(self, key: Key) -> int:
        """Until the object ends with its lease."""
        await self._ask()
        lease = self._database.leased.get(keys.path_of(key), 0)
        _, ends = self._database.leases.get(lease, (0, 0.0))
        await self._answered()
        return max(0, int(ends - asyncio.get_running_loop().time()))

    async def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """What happens after a revision."""
        database, loop = self._database, asyncio.get_running_loop()
        await self._ask()
        if revision < database.compacted:
            raise Compacted(f"etcd has compacted revision {revision + 1}")
        yield Batch([], revision)
        at = revision
        while True:
            if at < database.compacted and database.revision > at:
                raise Compacted(f"etcd has compacted revision {at + 1}")
            due = database.after(at)
            if not due:
                await self.weather.news(database.waiting)
                if self.weather.away:
                    await self._deaf()
                continue
            await self.weather.travel()
            if self.weather.away:
                await self._deaf()
            wait = self._held_until - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            # Some of it, cut between revisions.
            upto = self.weather.chance.choice(due)[0]
            found = []
            for number, path, raw in due:
                if number > upto:
                    break
                event = _event(selections, number, path, raw)
                if event is not None:
                    found.append(event)
            at = upto
            yield Batch(found, at)

    async def _deaf(self) -> None:
        """The way is cut: after a while that is noticed, unless it is open again by then."""
        await asyncio.sleep(self.weather.chance.random() * 10)
        if self.weather.away:
            raise DatastoreUnavailable("the watch broke off (simulated)")

    def hold(self) -> None:
        """As etcd's stream does: nothing is told for a moment."""
        now = asyncio.get_running_loop().time()
        if now >= self._held_until:
            self._held_since = now
        self._held_until = min(now + 0.02, self._held_since + HOLD_MOST)

    async def close(self) -> None:
        """Nothing to give back."""


def _selected(selection: Selection, path: str) -> Key | None:
    first, end = keys.range_of(selection)
    if not first <= path.encode() < (end or first + b"\0"):
        return None
    key = keys.key_of_path(path)
    return key if key is not None and keys.selects(selection, key) else None


def _event(
    selections: Sequence[Selection], number: int, path: str, raw: bytes | None
) -> Event | None:
    for selection in selections:
        key = _selected(selection, path)
        if key is None:
            continue
        if raw is None:
            return Event(key, None, number)
        if selection.raw:
            return Event(key, Entry(key, None, number, raw), number)
        entry, broken = entry_of(key, raw, number)
        return Event(key, entry, number, broken)
    return None


def _writes(change: Change) -> bool:
    return isinstance(change, Put | Delete)


def _operation(change: Change) -> tuple[str, bytes | None]:
    path = keys.path_of(change.key)
    if not isinstance(change, Put):
        return path, None
    value = stamp(change.value) if isinstance(change.key, ResourceKey) else change.value
    return path, codec.encode_value(change.key, value, change.base.raw if change.base else None)
