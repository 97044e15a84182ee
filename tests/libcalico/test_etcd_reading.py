"""Long reads through real proxies before a real etcd: failures and returns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from felix.reports import status_document
from libcalico.datastore import connect
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Selection
from libcalico.errors import DatastoreUnavailable
from tests.libcalico.proxied import (
    HANDLES,
    NODE,
    opened,
    preferring,
    see,
    through,
    until_back,
    way_of,
)
from tests.libcalico.test_syncer import View, following, handle, put
from tests.support.etcd import Etcd, make_cluster
from tests.support.etcd_proxy import GrpcProxy
from tests.support.patience import until, until_asked

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("eager")]


@pytest.mark.promise("F-113")
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
        way = way_of(store)
        assert way.proxy == pair[0].endpoint
        pair[0].kill()
        await see(view, store, "b")
        await until(lambda: way.proxy == pair[1].endpoint)
        told = len(view.updates)
        await way.look()
        assert way.proxy == pair[1].endpoint, "it does not answer yet"
        pair[0].start()
        await until_back(way, pair[0])
        await see(view, store, "c")
        assert len(view.updates) == told + 1
        assert all(view.in_sync[1:])


@pytest.mark.promise("PAIN-30")
async def test_a_proxy_that_dies_moves_its_own_nodes_alone(
    private_etcd: Etcd, pair: list[GrpcProxy]
) -> None:
    async with AsyncExitStack() as stack:
        views: list[tuple[View, EtcdDatastore]] = []
        for node in [*preferring(pair[0], pair, 4), *preferring(pair[1], pair, 4)]:
            store = await stack.enter_async_context(opened(through(private_etcd, pair), node))
            views.append((await stack.enter_async_context(following(store)), store))
        writer = views[0][1]
        await asyncio.gather(*(see(view, writer, f"a{at}") for at, (view, _) in enumerate(views)))
        before = {store: way_of(store).present for _, store in views}
        gone = [store for store in before if way_of(store).proxy == pair[0].endpoint]
        assert len(gone) == 4
        pair[0].kill()
        for at, (view, _) in enumerate(views):
            await see(view, writer, f"b{at}")
        assert all(way_of(store).proxy == pair[1].endpoint for store in before)
        stayed = [store for store in before if way_of(store).present is before[store]]
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
        way = way_of(store)
        assert way.proxy is None
        assert "no etcd proxy answers" in view.syncer.detour
        (named,) = status_document._detour(view.syncer)
        assert named[0] == "ETCD_READ_ENDPOINTS"
        assert "etcd itself is read: no etcd proxy answers" in named[1]
        assert "reads go on with etcd itself" in caplog.text
        pair[1].start()
        await until_back(way, pair[1])
        await see(view, store, "b")
        assert view.syncer.detour == ""
        assert status_document._detour(view.syncer) == []
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


async def test_connect_reads_the_proxies_of_the_configuration(
    private_etcd: Etcd, pair: list[GrpcProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODENAME", NODE)
    store = await connect(through(private_etcd, pair))
    assert isinstance(store, EtcdDatastore)
    try:
        await store.reader.list(Selection("Handle"))
        assert way_of(store).proxy == pair[0].endpoint
    finally:
        await store.close()
    await asyncio.sleep(0)
