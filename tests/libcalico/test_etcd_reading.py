"""Long reads through real proxies before a real etcd: failures, returns, and what they may hide."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd import proxies, reading, watch
from libcalico.datastore.etcd.proxies import ranked
from libcalico.datastore.etcd.reading import Reader
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.watch_responses import NEAR
from libcalico.datastore.interface import Compacted, Datastore, Selection
from libcalico.errors import DatastoreUnavailable
from tests.libcalico.test_syncer import View, following, handle, put
from tests.support.etcd import Etcd, make_cluster
from tests.support.etcd_proxy import GrpcProxy, ProxiedEtcd
from tests.support.patience import until, until_asked

pytestmark = pytest.mark.asyncio
NODE = "node1"
HANDLES = "/calico/ipam/v2/handle"


@pytest.fixture
def pair(private_etcd: Etcd, tmp_path: Path) -> Iterator[list[GrpcProxy]]:
    """Two proxies before `private_etcd`, the one that NODE prefers first."""
    made = [GrpcProxy(tmp_path / f"p{number}", [private_etcd.endpoint]) for number in range(2)]
    order = ranked(NODE, [one.endpoint for one in made])
    made.sort(key=lambda one: order.index(one.endpoint))
    for one in made:
        one.start()
    yield made
    for one in made:
        one.stop()


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is minutes in a cluster; the keeper's questions are the tests' own."""
    monkeypatch.setattr(proxies, "AWAY", (0.0, 0.0))
    monkeypatch.setattr(proxies, "SPREAD", 0.05)
    monkeypatch.setattr(reading, "LOOK", (3600.0, 3600.0))


@asynccontextmanager
async def opened(config: DatastoreConfig, node: str = NODE) -> AsyncIterator[EtcdDatastore]:
    store = EtcdDatastore(config, node=node)
    try:
        yield store
    finally:
        await store.close()


def through(server: Etcd, pair: list[GrpcProxy]) -> DatastoreConfig:
    return replace(server.config(), read_endpoints=",".join(one.endpoint for one in pair))


def reader_of(store: EtcdDatastore) -> Reader:
    assert isinstance(store.reader, Reader)
    return store.reader


async def see(view: View, store: Datastore, name: str) -> None:
    await put(store, name)
    await view.until(lambda: handle(name) in view.state, name)


async def test_long_reads_go_through_the_proxy_and_nothing_else_does(
    private_etcd: Etcd, pair: list[GrpcProxy]
) -> None:
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        for one in pair:
            one.kill()
        assert await store.get(handle("a")) is not None
        assert len((await store.list(Selection("Handle"))).entries) == 1


async def test_a_proxy_that_dies_is_left_for_the_other_and_returned_to(
    private_etcd: Etcd, pair: list[GrpcProxy]
) -> None:
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        reader = reader_of(store)
        assert reader._proxy == pair[0].endpoint
        pair[0].kill()
        await see(view, store, "b")
        await until(lambda: reader._proxy == pair[1].endpoint)
        told = len(view.updates)
        await reader.look()
        assert reader._proxy == pair[1].endpoint, "it does not answer yet"
        pair[0].start()

        async def is_back() -> bool:
            await reader.look()
            return reader._proxy == pair[0].endpoint

        await until_asked(is_back, "the preferred proxy")
        await see(view, store, "c")
        assert len(view.updates) == told + 1
        assert all(view.in_sync[1:])


async def test_a_proxy_that_dies_moves_its_own_nodes_alone(
    private_etcd: Etcd, pair: list[GrpcProxy]
) -> None:
    async with AsyncExitStack() as stack:
        views: list[tuple[View, EtcdDatastore]] = []
        for number in range(8):
            config = through(private_etcd, pair)
            store = await stack.enter_async_context(opened(config, f"node{number}"))
            views.append((await stack.enter_async_context(following(store)), store))
        writer = views[0][1]
        await asyncio.gather(*(see(view, writer, f"a{at}") for at, (view, _) in enumerate(views)))
        before = {store: reader_of(store)._present for _, store in views}
        gone = [store for store in before if reader_of(store)._proxy == pair[0].endpoint]
        assert 0 < len(gone) < len(views)
        pair[0].kill()
        for at, (view, _) in enumerate(views):
            await see(view, writer, f"b{at}")
        assert all(reader_of(store)._proxy == pair[1].endpoint for store in before)
        stayed = [store for store in before if reader_of(store)._present is before[store]]
        assert set(stayed) == set(before) - set(gone)


async def test_a_member_behind_a_proxy_may_be_lost(tmp_path: Path) -> None:
    members = make_cluster(tmp_path / "members")
    proxy = GrpcProxy(tmp_path / "proxy", [one.endpoint for one in members]).start()
    endpoints = ",".join(one.endpoint for one in members)
    config = replace(members[0].config(), etcd_endpoints=endpoints, read_endpoints=proxy.endpoint)
    try:
        async with opened(config) as store, following(store) as view:
            await view.until(lambda: view.syncer.in_sync, "snapshot")
            for one in members:
                await see(view, store, f"{one.name}-runs")
                one.kill()
                name = f"{one.name}-gone"

                async def written(name: str = name) -> bool:
                    with contextlib.suppress(DatastoreUnavailable):
                        await put(store, name)
                        return True
                    return False

                await until_asked(written, name)
                await view.until(lambda name=name: handle(name) in view.state, name)  # type: ignore[misc]
                one.start()
            assert len(view.state) == 2 * len(members)
    finally:
        proxy.stop()
        for one in members:
            one.stop()


async def test_without_proxies_etcd_itself_is_read_and_the_log_says_so(
    private_etcd: Etcd, pair: list[GrpcProxy], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        for one in pair:
            one.kill()
        await see(view, store, "a")
        reader = reader_of(store)
        assert reader._proxy is None
        assert "no etcd proxy answers" in reader.bypass
        assert "reads go on with etcd itself" in caplog.text
        pair[1].start()

        async def is_back() -> bool:
            await reader.look()
            return reader._proxy == pair[1].endpoint

        await until_asked(is_back, "a proxy")
        await see(view, store, "b")
        assert reader.bypass == ""
        assert f"{pair[1].endpoint} answers" in caplog.text


async def test_etcd_that_restarts_behind_a_proxy_loses_and_repeats_nothing(
    private_etcd: Etcd, pair: list[GrpcProxy]
) -> None:
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        for number in range(5):
            await see(view, store, f"h{number}")
        told = len(view.updates)
        private_etcd.restart()
        private_etcd.delete(f"{HANDLES}/h3")
        private_etcd.put(f"{HANDLES}/late", '{"block":{},"deleted":false}')
        await view.until(lambda: handle("late") in view.state, "the new one")
        await view.until(lambda: handle("h3") not in view.state, "the deletion")
        assert len(view.updates) == told + 2


@pytest.mark.parametrize("token", ["etcd-cluster", "restored"])
async def test_a_store_put_back_behind_a_living_proxy_is_listed_anew(
    private_etcd: Etcd, pair: list[GrpcProxy], tmp_path: Path, token: str
) -> None:
    """The proxy tells nobody: it waits for a revision that the restored store comes to later."""
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
        reader = reader_of(store)

        async def listed_anew() -> bool:
            try:
                await reader.look()
            except Compacted:
                pass
            return set(view.state) == {handle("kept")}

        await until_asked(listed_anew, "the store as it is")
        await see(view, store, "after")


async def test_a_proxy_that_hangs_is_noticed_and_left(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(through(private_etcd, pair)) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        pair[0].pause()
        monkeypatch.setattr(reading, "ANSWER", 0.3)
        await reader_of(store).look()
        monkeypatch.undo()
        await see(view, store, "b")
        assert reader_of(store)._proxy == pair[1].endpoint


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
            assert "behind etcd, or before another one" in reader_of(store).bypass
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
        reader = reader_of(store)
        monkeypatch.setattr(watch, "SILENCE", 0.2)
        # One more event, and the wait for the next one is short.
        await see(view, store, "b")
        await until(lambda: reader._proxy == pair[1].endpoint)
        monkeypatch.setattr(watch, "SILENCE", 3600.0)
        await see(view, store, "c")
        assert all(view.in_sync[1:])


async def test_connect_reads_the_proxies_of_the_configuration(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODENAME", NODE)
    store = await connect(through(private_etcd, pair))
    assert isinstance(store, EtcdDatastore)
    try:
        await store.reader.list(Selection("Handle"))
        assert reader_of(store)._proxy == pair[0].endpoint
    finally:
        await store.close()
    await asyncio.sleep(0)
