"""Watches of collections, with an API that says what the test wants (else: tests/apiserver)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from libcalico.datastore.interface import Batch, Compacted, Selection
from libcalico.datastore.kubernetes import positions
from libcalico.datastore.kubernetes import watch as watching
from libcalico.datastore.kubernetes.feeds import NOWHERE, Feed
from libcalico.datastore.kubernetes.positions import Memory
from libcalico.datastore.kubernetes.table import Table
from libcalico.kubernetes.connections import JSON
from libcalico.kubernetes.errors import ObjectNotFound
from tests.simulation.loop import Clock, Loop
from tests.support.patience import patient


class Api:
    """Stands at `revision`; `watches` has the lines of one after the other, then one hangs."""

    def __init__(self, revision: int, *watches: list[Mapping[str, Any]]) -> None:
        self.revision, self.watches = revision, list(watches)
        self.asked: list[str] = []

    async def request(
        self, method: str, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> bytes:
        assert (method, query.get("limit")) == ("GET", "1")
        assert "resourceVersion" not in query, "whoever answers from memory may be behind"
        self.asked.append(path)
        if not self.revision:
            raise ObjectNotFound(f"GET {path}", 404)
        meta = {"resourceVersion": str(self.revision)}
        return msgspec.json.encode({"metadata": meta, "items": []})

    async def lines(
        self,
        path: str,
        revision: str,
        query: Mapping[str, str],
        *,
        seconds: int = 0,
        accept: str = JSON,
    ) -> AsyncGenerator[bytes, None]:
        yield b""
        if not self.watches:
            await asyncio.Event().wait()
        for one in self.watches.pop(0):
            yield msgspec.json.encode(one)
        # A watch that ended at once would be trouble of another kind.
        await asyncio.sleep(watching.SHORT)


def told(kind: str, revision: int) -> dict[str, Any]:
    meta = {"name": "p", "resourceVersion": str(revision)}
    return {"type": kind, "object": {"metadata": meta, "spec": {}}}


def feeds(family: str) -> list[Feed]:
    return [
        Feed(Selection(family), mapping, mapping.collection.path(), {})
        for mapping in Table().of_family(family)
    ]


def followed(api: Api, at: int, family: str = "IPPool") -> list[Batch]:
    """The batches until the watch says its last word, which is that it is too late."""
    found: list[Batch] = []

    async def follow() -> None:
        mine = feeds(family)
        positions = dict.fromkeys([feed.path for feed in mine], at)
        async with asyncio.timeout(patient(20)):
            client: Any = api
            async for batch in watching.watch(client, mine, positions, Memory()):
                found.append(batch)

    with pytest.raises(Compacted):
        asyncio.run(follow())
    return found


def test_a_store_that_was_put_back_before_the_watch() -> None:
    assert followed(Api(99), 100) == []


def test_a_store_that_was_put_back_between_two_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SHORT", 0.01)
    api = Api(100, [told("ADDED", 101), told("BOOKMARK", 105)])
    found = followed(api, 100)
    assert [event.revision for batch in found for event in batch] == [101]
    assert found[-1].revision == 105
    assert len(api.asked) == 2


def test_a_watch_whose_time_is_over_goes_on_without_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "SHORT", 0.01)
    monkeypatch.setattr(watching, "WATCH", (0, 0))
    api = Api(100, [told("ADDED", 101)], [told("ADDED", 102)], [told("BOOKMARK", 99)])
    found = followed(api, 100)
    assert [event.revision for batch in found for event in batch] == [101, 102]
    assert len(api.asked) == 1


def test_a_bookmark_of_an_earlier_state() -> None:
    assert not any(followed(Api(100, [told("BOOKMARK", 99)]), 100))


def test_a_collection_that_is_not_defined_is_probed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody lists the other collection of its family again because it is not there."""
    monkeypatch.setattr(watching, "AGAIN", 0.001)
    monkeypatch.setattr(watching, "SELDOM", 0.001)
    custom, native = feeds("GlobalNetworkPolicy")
    api, probes = Api(100), 20

    async def request(
        method: str, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> bytes:
        api.revision = 100 if path == custom.path or api.asked.count(path) > probes else 0
        return await Api.request(api, method, path, query)

    monkeypatch.setattr(api, "request", request)
    followed(api, NOWHERE, "GlobalNetworkPolicy")
    assert (api.asked.count(custom.path), api.asked.count(native.path)) == (1, probes + 2)


def test_what_is_not_defined_is_looked_for_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """24 hours of a node in a cluster without one of the kinds, in simulated time."""
    looks: list[float] = []

    async def request(*_: Any, **__: Any) -> bytes:
        looks.append(loop.time())
        raise ObjectNotFound("GET", 404)

    async def day() -> None:
        client: Any = SimpleNamespace(request=request)
        mine = feeds("GlobalNetworkPolicy")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(24 * 3600):
                positions = dict.fromkeys([feed.path for feed in mine], NOWHERE)
                async for _ in watching.watch(client, mine[1:], positions, Memory()):
                    pass

    loop = Loop(Clock(), Random(1), lambda _: [])
    try:
        loop.run_until_complete(day())
    finally:
        loop.close()
    pauses = [after - before for before, after in pairwise(looks)]
    assert min(pauses) >= 0.75 * watching.AGAIN
    assert max(pauses) <= 1.3 * watching.SELDOM
    assert len(looks) < 24 * 3600 / (0.75 * watching.SELDOM) + 5


def test_a_collection_that_is_not_defined_any_more_is_listed_again() -> None:
    assert not any(followed(Api(0), 100, "IPReservation"))


def test_positions_of_two_readers_at_one_number() -> None:
    memory = Memory()
    assert memory.keep("Profile", {"a": 5, "b": 9}) == 9
    memory.keep("Profile", {"a": 9, "b": 7})
    memory.keep("Profile", {"a": 9, "c": 3})
    assert memory.find("Profile", 9, ["a", "b"]) == {"a": 5, "b": 7}
    assert memory.find("Profile", 9, ["a", "c"]) == {"a": 5, "c": 3}
    assert memory.find("IPPool", 4, ["d"]) == {"d": 4}


def test_a_busy_family_does_not_push_another_out() -> None:
    memory = Memory()
    memory.keep("Profile", {"a": 1, "b": 2})
    for number in range(3, positions.REMEMBERED + 10):
        memory.keep("NetworkPolicy", {"c": 1, "d": number})
    assert memory.find("Profile", 2, ["a", "b"]) == {"a": 1, "b": 2}
    with pytest.raises(Compacted, match="not known"):
        memory.find("NetworkPolicy", 3, ["c", "d"])
