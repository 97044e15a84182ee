"""One world a test file: a node with felix ready."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.felix.in_kernel import BACKENDS, NFTABLES, mode
from tests.felix.stage import Stage, make_stage
from tests.felix.world import World, make_world

# The fast tier runs these on nftables too; full size runs everything on all back ends.
_FAST_MODULES = (
    "test_policy_packets", "test_policy_in_force", "test_hosts", "test_restart_matrix",
    "test_rules_met", "test_quarantine_kernel", "test_ipvs_link", "test_sweeps",
    "test_confined", "test_node_rules", "test_successor", "test_restart", "test_floating",
    "test_policy_kinds", "test_policy_extremes",
)  # fmt: skip
_FAST_TESTS = (
    "test_a_spoofed_source_is_dropped",
    "test_traffic_that_leaves_the_pools_has_the_nodes_address",
    "test_an_unknown_interface_gets_nothing_through",
    "test_a_restart_writes_nothing_and_is_not_felt",
    "test_rules_in_either_back_end",
    "test_each_denied_packet_is_told_with_the_rule_that_denied_it",
    "test_felix_agrees_and_the_kernel_has_counted",
)
# Of these the fast tier runs one variant of iptables; what differs between the two is the writer.
_ONE_VARIANT = (
    "test_hosts", "test_confined", "test_node_rules", "test_quarantine", "test_programs_started",
    "test_drops", "test_policy_life", "test_explain_live",
    "test_a_day_beside_kube_proxy_and_docker",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    left = {item for item in items if _slow_twin(item)}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


def _slow_twin(item: pytest.Item) -> bool:
    """Whether another back end stands for this test in the fast tier."""
    name, _, parameters = item.name.partition("[")
    if "legacy" in parameters and {item.path.stem, name} & set(_ONE_VARIANT):
        return True
    if NFTABLES not in parameters or not item.path.is_relative_to(Path(__file__).parent):
        return False
    return item.path.stem not in _FAST_MODULES and name not in _FAST_TESTS


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every test of a world runs on iptables and on nftables."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def world(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node whose datastore is initialised and whose felix is ready."""
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.etcd.start()
        world.write_cluster()
        world.environment |= mode(backend)
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
