"""What a proxy keeps to itself: an etcd that is away, another, put back, or what it left out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libcalico.datastore.etcd import watch
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.proxy import reading
from libcalico.datastore.etcd.proxy import way as ways
from libcalico.datastore.etcd.watch_responses import NEAR
from libcalico.datastore.interface import Batch, Compacted, Put, Replaced, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Metadata, Node, ResourceKey
from tests.libcalico.proxied import HANDLES, opened, see, through, way_of
from tests.libcalico.test_syncer import following, handle, put
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy, ProxiedEtcd
from tests.support.patience import HANG, until, until_asked

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("eager")]
HANDLE = Selection("Handle")


@pytest.mark.parametrize("token", ["etcd-cluster", "restored"])
async def test_a_store_put_back_behind_a_living_proxy_is_listed_anew(
    private_etcd: Etcd, pair: list[GrpcProxy], tmp_path: Path, token: str
) -> None:
    """The proxy says nothing: it waits for a revision that the restored store comes to later."""
    if token == "etcd-cluster":
        private_etcd.restart()
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "kept")
        private_etcd.save(tmp_path / "backup")
        for number in range(5):
            await see(view, store, f"lost{number}")
        view.revisions.clear()
        private_etcd.put_back(tmp_path / "backup", token)
        private_etcd.start()
        way = way_of(store)

        async def listed_anew() -> bool:
            try:
                await way.look()
            except Compacted:
                pass
            return set(view.state) == {handle("kept")}

        await until_asked(listed_anew, "the store as it is")
        await see(view, store, "after")


@pytest.mark.parametrize("finder", ["events", "read", "write"])
async def test_every_family_hears_of_a_store_put_back_whoever_finds_it(
    private_etcd: Etcd, pair: list[GrpcProxy], tmp_path: Path, finder: str
) -> None:
    """One finder is enough: the watches of quiet families stand on the proxy, which is silent."""
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "kept")
        private_etcd.save(tmp_path / "backup")
        lost = ResourceKey("Node", "lost")
        await store.commit([Put(lost, Node(metadata=Metadata(name="lost")))])
        await view.until(lambda: lost in view.state, "a node")
        behind = private_etcd.revision()
        view.revisions.clear()
        private_etcd.put_back(tmp_path / "backup", "restored")
        private_etcd.start()
        # The other watch is to find it by its own events, or not at all.
        place = HANDLES if finder == "events" else "/elsewhere"
        while private_etcd.revision() <= behind:
            private_etcd.put(f"{place}/new", '{"block":{},"deleted":false}')
        if finder == "read":
            with pytest.raises(Replaced):
                await store.get(handle("kept"))
        elif finder == "write":
            await put(store, "written")
        else:
            await view.until(lambda: handle("new") in view.state, "the new one")
        with contextlib.suppress(Replaced):
            await way_of(store).look()
        await view.until(lambda: lost not in view.state, "the quiet family")


async def test_a_proxy_of_another_etcd_is_not_believed(
    private_etcd: Etcd, etcd: Etcd, pair: list[GrpcProxy], tmp_path: Path
) -> None:
    other = GrpcProxy(tmp_path / "other", [etcd.endpoint]).start()
    try:
        config = replace(private_etcd.config(), read_endpoints=other.endpoint)
        async with opened(config) as store:
            await put(store, "a")
            listing = await store.reader.list(Selection("Handle"))
            assert [one.key for one in listing.entries] == [handle("a")]
            assert "behind etcd, or before another one" in way_of(store).bypass
    finally:
        other.stop()


async def test_a_watch_that_begins_far_behind_is_refused_before_the_proxy_loses_of_it(
    tmp_path: Path,
) -> None:
    """Measured: with a second watch of the range, a proxy told 1001 of 3501 changes."""
    server = ProxiedEtcd(tmp_path / "etcd")
    server.start()
    try:
        async with server.connect() as store:
            stream = store.watch([Selection("Handle")], 1)
            await anext(stream)
            for number in range(NEAR + 1):
                await put(store, f"h{number}")
            behind = store.watch([Selection("Handle")], 1)
            with pytest.raises(Compacted, match="through a proxy"):
                await anext(behind)
            near = server.revision() - NEAR
            async with aclosing(store.watch([Selection("Handle")], near)) as batches:  # type: ignore[type-var]
                seen: list[int] = []
                async for batch in batches:
                    seen += [event.revision for event in batch]
                    if len(seen) >= NEAR:
                        break
            assert seen == list(range(near + 1, near + NEAR + 1))
            await stream.aclose()  # type: ignore[attr-defined]
    finally:
        server.proxy.stop()
        server.stop()


async def test_a_watch_that_is_silent_for_too_long_begins_anew_elsewhere(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may lose a watch of its own on etcd, and not say so to those who share it."""
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        way = way_of(store)
        leave = way.failed

        async def left_once(*arguments: Any, **named: Any) -> None:
            # Else the next proxy would be left for its silence as well.
            monkeypatch.setattr(watch, "SILENCE", 3600.0)
            await leave(*arguments, **named)

        monkeypatch.setattr(way, "failed", left_once)
        monkeypatch.setattr(watch, "SILENCE", 0.2)
        # One more event, and the wait for the next one is short.
        await see(view, store, "b")
        await until(lambda: way.proxy == pair[1].endpoint)
        await see(view, store, "c")
        assert all(view.in_sync[1:])


async def test_a_proxy_that_hangs_is_noticed_and_left(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        pair[0].pause()
        # In a context: what `eager` has set stands on.
        with monkeypatch.context() as hasty:
            hasty.setattr(ways, "ANSWER", 0.3)
            hasty.setattr(ways, "ETCD_ANSWER", HANG)
            await way_of(store).look()
        await see(view, store, "b")
        assert way_of(store).proxy == pair[1].endpoint


async def test_an_etcd_that_is_away_is_no_fault_of_the_proxy(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(through(private_etcd, pair), timeout=1.0)
    async with opened(config) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        way = way_of(store)
        # The first, or on a busy machine the second: a second is little for a snapshot.
        chosen = way.proxy
        with monkeypatch.context() as hasty:
            for name in ("ANSWER", "ETCD_ANSWER"):
                hasty.setattr(ways, name, 1.0)
            private_etcd.kill()
            with contextlib.suppress(DatastoreUnavailable):
                await way.look()
            await view.until(lambda: not view.syncer.connected, "noticing")
            assert view.syncer.error
            # A proxy that is behind etcd with coming back may be left: it is asked for before.
            before = way.present
            await until(lambda: way.present not in (None, before), "another attempt")
            assert way.proxy == chosen
        private_etcd.start()
        await view.until(lambda: view.syncer.connected, "coming back")
        private_etcd.put(f"{HANDLES}/late", '{"block":{},"deleted":false}')
        await view.until(lambda: handle("late") in view.state, "the new one")


async def test_a_watch_after_a_listing_that_took_long_begins_at_etcd_itself(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a family whose listing takes longer than so many changes would never be followed."""
    ways_taken: list[bool] = []

    def noting(
        connection: Connection, selections: Sequence[Selection], revision: int
    ) -> AsyncGenerator[Batch, None]:
        ways_taken.append(connection.proxied)
        return begin(connection, selections, revision)

    begin = watch.watch
    monkeypatch.setattr(watch, "watch", noting)
    async with opened(through(private_etcd, pair)) as store:
        start = (await store.reader.list(HANDLE)).revision
        for number in range(NEAR + 1):
            await put(store, f"h{number}")
        with pytest.raises(Compacted, match="through a proxy"):
            await anext(store.reader.watch([HANDLE], start - 1))
        ways_taken.clear()
        stream = store.reader.watch([HANDLE], start)
        seen: list[int] = []
        while len(seen) < NEAR + 1 or ways_taken[-1:] != [True]:
            seen += [event.revision for event in await asyncio.wait_for(anext(stream), HANG)]
        assert ways_taken[:2] == [True, False]
        await put(store, "after")
        while len(seen) < NEAR + 2:
            seen += [event.revision for event in await asyncio.wait_for(anext(stream), HANG)]
        assert seen == list(range(start + 1, start + NEAR + 3))
        await stream.aclose()  # type: ignore[attr-defined]


async def test_a_large_family_far_behind_is_followed_at_etcd_and_not_listed_anew(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage thousands of nodes go on at their revision: a listing each is too much."""
    monkeypatch.setattr(reading, "SMALL", 1)
    async with opened(through(private_etcd, pair)) as store:
        await put(store, "first")
        await put(store, "second")
        start = (await store.reader.list(HANDLE)).revision
        await put(store, "third")
        stream = store.reader.watch([HANDLE], start)
        seen: list[int] = []
        while not seen:
            seen += [event.revision for event in await asyncio.wait_for(anext(stream), HANG)]
        await stream.aclose()  # type: ignore[attr-defined]
        for number in range(NEAR + 1):
            await put(store, f"h{number}")
        stream = store.reader.watch([HANDLE], start + 1)
        while len(seen) < NEAR + 2:
            seen += [event.revision for event in await asyncio.wait_for(anext(stream), HANG)]
        assert seen == list(range(start + 1, start + NEAR + 3))
        await stream.aclose()  # type: ignore[attr-defined]
