"""When a value under a lease is written, and when its lease alone is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from libcalico.datastore.interface import Change, LeaseEnded, Put
from libcalico.datastore.leased_values import REWRITE, LeasedValues, due_at
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import LifeSignKey
from libcalico.model.resources.status import LifeSign

TTL = 60


class Store:
    """Leases that last until `end`; `calls` are the questions, `writes` the leases of the puts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alive: set[int] = set()
        self.calls: list[str] = []
        self.writes: list[int] = []
        self.away = self.forgets = False
        self.granted = 0

    async def grant(self, ttl: int) -> int:
        self._ask("grant")
        self.granted += 1
        self.alive.add(self.granted)
        return self.granted

    async def keep_alive(self, lease: int) -> bool:
        self._ask("keep")
        kept = lease in self.alive
        if self.forgets:
            self.alive.clear()
            self.forgets = False
        return kept

    async def seconds_left(self, key: object) -> int:
        raise AssertionError

    async def commit(self, changes: Sequence[Change]) -> int:
        self._ask("write")
        (put,) = changes
        assert isinstance(put, Put)
        if put.lease not in self.alive:
            raise LeaseEnded("gone")
        self.writes.append(put.lease)
        return 1

    def _ask(self, what: str) -> None:
        if self.away:
            raise DatastoreUnavailable("away")
        self.calls.append(what)


class Owner:
    """Gives its value at simulated times."""

    def __init__(self, unit: float = 0.0) -> None:
        self.store = Store()
        self.values = LeasedValues(lambda: self.store.now, lambda: unit)

    def give(self, seconds: float = 0.0, content: object = "a", ttl: int = TTL) -> list[str]:
        """The calls of one life sign, `seconds` after the one before."""
        self.store.now += seconds
        self.store.calls.clear()
        changes = lambda lease: [Put(LifeSignKey("n"), LifeSign(), lease=lease)]  # noqa: E731
        asyncio.run(self.values.give(self.store, changes, ttl, content))
        return list(self.store.calls)


def test_the_first_time_it_is_written_and_then_kept_until_five_minutes_passed() -> None:
    owner = Owner()
    assert owner.give() == ["grant", "write"]
    calls = [owner.give(30) for _ in range(20)]
    assert [number for number, each in enumerate(calls, 1) if "write" in each] == [10, 20]
    assert all(each[0] == "keep" for each in calls)
    assert owner.store.granted == 1


@pytest.mark.parametrize(("unit", "seconds"), [(0.0, 300), (0.5, 270), (1.0, 240)])
def test_nodes_that_started_together_write_at_other_times(unit: float, seconds: float) -> None:
    assert due_at(1000, unit) == 1000 + seconds
    assert seconds <= REWRITE


def test_what_is_new_is_written_at_once_under_the_same_lease() -> None:
    owner = Owner()
    owner.give()
    assert owner.give(30, "b") == ["keep", "write"]
    assert owner.give(30, "b") == ["keep"]
    owner.values.rewrite()
    assert owner.give(30, "b") == ["keep", "write"]


def test_another_time_to_live_is_another_lease() -> None:
    owner = Owner()
    owner.give()
    assert owner.give(30, ttl=90) == ["grant", "write"]
    assert owner.give(30, ttl=90) == ["keep"]


def test_a_lease_that_the_store_lost_is_granted_anew_and_the_value_written_at_once() -> None:
    owner = Owner()
    owner.give()
    owner.store.alive.clear()
    assert owner.give(30) == ["keep", "grant", "write"]
    assert owner.store.writes == [1, 2]
    owner.values.forget()
    assert owner.give(30) == ["grant", "write"]


def test_a_lease_that_ends_between_two_questions() -> None:
    owner = Owner()
    owner.give()
    owner.store.forgets = True
    assert owner.give(REWRITE) == ["keep", "write", "grant", "write"]
    assert owner.store.writes == [1, 2]


def test_what_failed_is_written_the_next_time() -> None:
    owner = Owner()
    owner.give()
    owner.store.away = True
    for content in ("a", "b"):
        with pytest.raises(DatastoreUnavailable):
            owner.give(30, content)
    owner.store.away = False
    assert owner.give(30, "b") == ["keep", "write"]


def test_an_outage_alone_makes_no_write() -> None:
    """etcd gives all leases their time anew when it starts, so the value still stands."""
    owner = Owner()
    owner.give()
    owner.store.away = True
    with pytest.raises(DatastoreUnavailable):
        owner.give(30)
    owner.store.away = False
    assert owner.give(30) == ["keep"]
