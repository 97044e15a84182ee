"""One API server for the session. The fast tier takes a few cases, where the programs are built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s import binaries
from tests.support.apiserver import ApiServer

HERE = Path(__file__).parent
FAST = (
    "test_a_name_whose_kubelet_lives_elsewhere_is_refused",
    "test_each_watcher_of_the_api_gets_each_change_once",
    "test_a_pod_is_an_endpoint_and_its_attachment_annotations",
    "test_a_label_that_a_running_pod_gets_is_enforced_on_its_own_node[nft]",
    "test_a_label_that_a_running_pod_gets_is_enforced_on_its_own_node[nftables]",
    "test_a_policy_opens_exactly_the_endpoints_of_a_service[nftables]",
    "test_the_internal_ip_is_registered_and_the_cluster_is_known",
    "test_a_pod_that_is_known_costs_no_request",
    "test_the_first_generation_configuration_runs_verbatim",
    "test_felix_gets_the_nodes_that_the_labels_select_now",
    "test_kubectl_shows_them_below_the_pod_and_the_node",
    "test_a_refused_add_is_told_on_its_pod_and_full_pools_on_the_node",
    "test_a_disabled_pool_is_routed_as_before",
    "test_deleted_claims_and_blocks_are_put_back",
    "test_the_definitions_take_what_we_take_and_refuse_what_we_refuse",
    "test_a_policy_that_becomes_unreadable_stays_as_it_was",
    "test_who_may_look_is_what_the_api_server_says",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE]
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


@pytest.fixture(scope="package")
def _shared_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api"))
    yield server
    server.stop()


@pytest.fixture
def api(_shared_api: ApiServer) -> ApiServer:
    """The room's server, running. A test uses a namespace of its own; it may kill the server."""
    _shared_api.resume()
    if not (_shared_api.running and _shared_api.etcd.running):
        _shared_api.start()
    return _shared_api


@pytest.fixture
def space(api: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of this test's own."""
    name: str = request.node.name.partition("[")[0].replace("_", "-")[5:45].strip("-")
    api.namespace(name)
    return name
