"""One world a test file: a node with felix ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.felix.stage import Stage, make_stage
from tests.felix.world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node whose datastore is initialised and whose felix is ready."""
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        yield world


@pytest.fixture
def bare_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node on which nothing runs yet, neither etcd nor felix."""
    with make_world(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="module", params=["nft", "legacy", "nftables"])
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Three pods under policy, once a back end."""
    with make_stage(tmp_path_factory.mktemp("world"), request.param) as stage:
        yield stage


@pytest.fixture
def stage(built: Stage) -> Iterator[Stage]:
    """The stage without policies; those of the test are taken away."""
    yield built
    built.clear()
