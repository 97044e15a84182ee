"""Stores that read through real proxies, and what their way is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.proxy.proxies import ranked
from libcalico.datastore.etcd.proxy.reading import Reader
from libcalico.datastore.etcd.proxy.way import Way
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Datastore
from tests.libcalico.test_syncer import View, handle, put
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy
from tests.support.patience import until_asked

NODE = "node1"
HANDLES = "/calico/ipam/v2/handle"


@asynccontextmanager
async def opened(config: DatastoreConfig, node: str = NODE) -> AsyncIterator[EtcdDatastore]:
    store = EtcdDatastore(config, node=node)
    try:
        yield store
    finally:
        await store.close()


def through(server: Etcd, pair: list[GrpcProxy]) -> DatastoreConfig:
    return replace(server.config(), read_endpoints=",".join(one.endpoint for one in pair))


def preferring(proxy: GrpcProxy, pair: list[GrpcProxy], count: int) -> list[str]:
    """Names of nodes that prefer a proxy of these. The ports, and so the ranks, differ each run."""
    endpoints = [one.endpoint for one in pair]
    names = (f"node{number}" for number in itertools.count())
    return list(
        itertools.islice((n for n in names if ranked(n, endpoints)[0] == proxy.endpoint), count)
    )


def way_of(store: EtcdDatastore) -> Way:
    assert isinstance(store.reader, Reader)
    return store.reader.way


async def see(view: View, store: Datastore, name: str) -> None:
    await put(store, name)
    await view.until(lambda: handle(name) in view.state, name)


async def until_back(way: Way, proxy: GrpcProxy) -> None:
    """Wait until reads go through a proxy that has been started again."""

    async def is_back() -> bool:
        await way.look()
        return way.proxy == proxy.endpoint

    await until_asked(is_back, f"a return to {proxy.endpoint}")
