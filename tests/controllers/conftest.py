"""A kube-apiserver for the room; Calico's keys lie in its etcd, beside Kubernetes' own.

The fast tier takes one case of those that need it, where the programs are built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.k8s import binaries
from tests.support.apiserver import ApiServer
from tests.support.audit import Audit
from tests.support.etcd import Etcd

FAST = (
    "test_policies_and_profiles_follow_kubernetes_and_nothing_is_written_twice",
    "test_what_changed_while_a_watch_was_cut_or_hung_is_made_good",
    "test_the_process_itself_writes_nothing_without_the_lease",
    "test_without_the_lease_nothing_is_written",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent.name == "controllers"]
    mine = [item for item in here if _needs_server(item)]
    if "MUSLIN_FULL_SIZE" not in os.environ:
        left = [item for item in mine if item.name not in FAST]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)
        mine = [item for item in mine if item.name in FAST]
    missing = binaries.missing() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.apiserver)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


def _needs_server(item: pytest.Item) -> bool:
    wanted = "cluster" in getattr(item, "fixturenames", ())
    return wanted or item.get_closest_marker("apiserver") is not None


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """What service accounts ask of the session's server."""
    return Audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="package")
def _shared_cluster(tmp_path_factory: pytest.TempPathFactory, audit: Audit) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api"), audit.flags)
    yield server
    server.stop()


@pytest.fixture
def cluster(_shared_cluster: ApiServer) -> ApiServer:
    """The room's API server, running; nothing of Calico is stored."""
    _shared_cluster.resume()
    if not (_shared_cluster.running and _shared_cluster.etcd.running):
        _shared_cluster.start()
    _shared_cluster.etcd.delete("/calico/")
    return _shared_cluster


@pytest.fixture
def stored(cluster: ApiServer) -> Etcd:
    """The datastore of Calico's resources."""
    return cluster.etcd
