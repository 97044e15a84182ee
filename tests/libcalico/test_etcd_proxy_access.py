"""Who a reader through a proxy is: TLS on both sides, and users, for whom there is no way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd.proxy.reading import Reader
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Put, Selection
from libcalico.errors import CertificateProblem
from libcalico.model import Handle, HandleKey
from tests.support.certificates import Authority, Pair
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy
from tests.support.etcd_users import USER, enable_auth, make_roles, with_user
from tests.support.patience import HANG

pytestmark = pytest.mark.asyncio
HANDLES = Selection("Handle")
KEY = HandleKey("a")


@asynccontextmanager
async def opened(config: DatastoreConfig) -> AsyncIterator[EtcdDatastore]:
    store = await connect(config)
    assert isinstance(store, EtcdDatastore)
    try:
        yield store
    finally:
        await store.close()


def by_proxy(store: EtcdDatastore) -> bool:
    return isinstance(store.reader, Reader) and store.reader.way.proxy is not None


class Guarded:
    """An etcd and a proxy that both want certificates, each of its own authority."""

    def __init__(self, folder: Path) -> None:
        self.inner, self.outer = (Authority(folder, name) for name in ("inner", "outer"))
        served = self.inner.issue("server")
        self.root, self.node = self.inner.issue("root"), self.inner.issue(USER)
        flags = _serving(served, self.inner)
        self.server = Etcd(folder / "etcd", [*flags, "--client-cert-auth=true"], "https")
        self.server.ctl_flags = _asking(self.root, self.inner)
        self.server.start()
        nameless = self.inner.issue("proxy", named=False)
        flags = [*_serving(self.outer.issue("front"), self.outer), *_asking(nameless, self.inner)]
        self.proxy = GrpcProxy(folder / "proxy", [self.server.endpoint], flags, "https").start()

    def config(self) -> DatastoreConfig:
        """The node's own certificate for etcd, another for the proxy."""
        reading = self.outer.issue("reading")
        return replace(
            self.server.config(),
            ca_file=str(self.inner.cert),
            cert_file=str(self.node.cert),
            key_file=str(self.node.key),
            read_endpoints=self.proxy.endpoint,
            read_ca_file=str(self.outer.cert),
            read_cert_file=str(reading.cert),
            read_key_file=str(reading.key),
        )

    def stop(self) -> None:
        self.proxy.stop()
        self.server.stop()


def _serving(pair: Pair, authority: Authority) -> list[str]:
    files = [f"--cert-file={pair.cert}", f"--key-file={pair.key}"]
    return [*files, f"--trusted-ca-file={authority.cert}"]


def _asking(pair: Pair, authority: Authority) -> list[str]:
    return [f"--cacert={authority.cert}", f"--cert={pair.cert}", f"--key={pair.key}"]


async def test_reads_have_their_own_certificates(tmp_path: Path) -> None:
    world = Guarded(tmp_path)
    try:
        async with opened(world.config()) as store:
            await store.commit([Put(KEY, Handle({}))])
            listing = await store.reader.list(HANDLES)
            assert [one.key for one in listing.entries] == [KEY]
            stream = store.reader.watch([HANDLES], listing.revision)
            await anext(stream)
            await store.commit([Put(KEY, Handle({"b": 1}))])
            assert [event.key for event in await asyncio.wait_for(anext(stream), HANG)] == [KEY]
            assert by_proxy(store)
        with pytest.raises(CertificateProblem, match="no-such-file"):
            await connect(replace(world.config(), read_ca_file="/no-such-file"))
    finally:
        world.stop()


async def test_where_etcd_has_users_reads_go_on_with_etcd_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The name of a certificate ends at the proxy, which has none of its own."""
    world = Guarded(tmp_path)
    try:
        make_roles(world.server)
        enable_auth(world.server, {USER: USER})
        async with opened(world.config()) as store:
            await store.commit([Put(KEY, Handle({}))])
            listing = await store.reader.list(HANDLES)
            assert [one.key for one in listing.entries] == [KEY]
            assert not by_proxy(store)
            assert "the role of this client does not allow it" in caplog.text
            stream = store.reader.watch([HANDLES], listing.revision)
            await anext(stream)
            await store.commit([Put(KEY, Handle({"b": 2}))])
            assert [event.key for event in await asyncio.wait_for(anext(stream), HANG)] == [KEY]
        # As a process whose etcd gets its users while a watch goes on.
        async with opened(world.config()) as store:
            await asyncio.wait_for(anext(store.reader.watch([HANDLES], listing.revision)), HANG)
            assert not by_proxy(store)
    finally:
        world.stop()


async def test_a_login_goes_through_no_proxy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The proxy would not tell when etcd restarts, and its watch by an older login ends."""
    with with_user(tmp_path) as (_, config):
        async with opened(replace(config, read_endpoints="http://127.0.0.1:1")) as store:
            assert store.reader is store
            assert "no etcd proxy is used" in caplog.text
            await store.commit([Put(KEY, Handle({}))])
            assert (await store.reader.list(HANDLES)).entries


async def test_a_proxy_takes_no_certificate_with_a_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    proxy = GrpcProxy(
        tmp_path / "p", ["https://127.0.0.1:1"], _asking(authority.issue("n"), authority)
    )
    with pytest.raises(RuntimeError, match="non empty Common Name"):
        proxy.start()
