"""The files of `BOTH_WAYS` meet a real etcd, and the same through `etcd grpc-proxy`.

The fast tier takes every third case of those through the proxy; full size takes all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from libcalico.datastore.etcd.proxy import proxies
from libcalico.datastore.etcd.proxy import way as ways
from libcalico.datastore.etcd.proxy.proxies import ranked
from tests.libcalico.proxied import NODE
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy, ProxiedEtcd

WAYS = ("etcd", "proxy")
BOTH_WAYS = tuple(
    f"test_{name}.py"
    for name in (
        *("etcd_connection", "etcd_entries", "etcd_express", "etcd_failover", "etcd_limits"),
        *("etcd_restored", "etcd_store", "etcd_stream", "etcd_twice"),
        *("syncer", "syncer_model", "syncer_sinks"),
    )
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of these files whose etcd is a fixture runs on both ways."""
    if metafunc.definition.path.name in BOTH_WAYS and "way" in metafunc.fixturenames:
        metafunc.parametrize("way", WAYS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fast tier leaves two of three cases through the proxy to full size."""
    if os.environ.get("MUSLIN_FULL_SIZE"):
        return
    proxied = [one for one in items if _way_of(one) == WAYS[1]]
    left = {one for number, one in enumerate(proxied) if number % 3}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [one for one in items if one not in left]


def _way_of(item: pytest.Item) -> object:
    return item.callspec.params.get("way") if hasattr(item, "callspec") else None


@pytest.fixture
def way() -> str:
    """Which way leads to etcd."""
    return WAYS[0]


@pytest.fixture(scope="session")
def _session_proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedEtcd]:
    server = ProxiedEtcd(tmp_path_factory.mktemp("proxied"))
    server.start()
    yield server
    server.proxy.stop()
    server.stop()


@pytest.fixture
def etcd(way: str, request: pytest.FixtureRequest) -> Etcd:
    """The session's etcd of this way, empty. Do not stop it: take `private_etcd` for that."""
    name = "_session_etcd" if way == WAYS[0] else "_session_proxied"
    server: Etcd = request.getfixturevalue(name)
    server.delete("")
    return server


@pytest.fixture
def private_etcd(way: str, tmp_path: Path) -> Iterator[Etcd]:
    """An etcd of this test's own, reached this way, to kill, pause, restart and compact."""
    server = (Etcd if way == WAYS[0] else ProxiedEtcd)(tmp_path / "etcd")
    server.start()
    yield server
    if isinstance(server, ProxiedEtcd):
        server.proxy.stop()
    server.stop()


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


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is minutes in a cluster is nothing; only the test asks whether a proxy serves."""
    monkeypatch.setattr(proxies, "AWAY", (0.0, 0.0))
    monkeypatch.setattr(proxies, "SPREAD", 0.05)
    monkeypatch.setattr(ways, "LOOK", (3600.0, 3600.0))
