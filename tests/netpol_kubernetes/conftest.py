"""Every case leaves the shared world as it found it, on either back end. It needs an API server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cyclonus.world import Runner
from tests.felix.in_kernel import BACKENDS, NFTABLES
from tests.k8s import binaries
from tests.netpol_cluster.houses import Houses, houses
from tests.netpol_kubernetes.world import KubernetesWorld, kubernetes_world

HERE = Path(__file__).parent
FAST = {
    BACKENDS[0]: ("pod-gets-a-label-that-isolates-it", "deleted-policy-is-no-longer-enforced"),
    NFTABLES: ("namespace-gets-a-label-that-lets-it-in", "pod-gets-a-label-that-lets-it-in"),
}
"""What the fast tier runs: what changes while pods run, which is told by watches of their own."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE]
    if "MUSLIN_FULL_SIZE" not in os.environ:
        wanted = {f"test_scenario[{end}-{name}]" for end, names in FAST.items() for name in names}
        left = [item for item in mine if item.name not in wanted]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)
    missing = binaries.missing() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.apiserver)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def nine_kubernetes_pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesWorld]:
    """The lab."""
    with kubernetes_world(f"netpolk{os.getpid()}", tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every scenario runs on iptables-nft and on nftables."""
    name: str = request.param
    return name


@pytest.fixture
def clean(nine_kubernetes_pods: KubernetesWorld, backend: str) -> Iterator[KubernetesWorld]:
    """The world without policies."""
    nine_kubernetes_pods.use(backend)
    nine_kubernetes_pods.said.clear()
    yield nine_kubernetes_pods
    nine_kubernetes_pods.reset()


@pytest.fixture(scope="module")
def runner(nine_kubernetes_pods: KubernetesWorld, backend: str) -> Iterator[Runner]:
    """What a case of tests/cyclonus changes, the next one takes back."""
    nine_kubernetes_pods.use(backend)
    made = Runner(nine_kubernetes_pods)
    yield made
    made.leave()
    print(f"{backend}: right only at a later look: {made.late or 'none'}")


@pytest.fixture(scope="module")
def four_houses(nine_kubernetes_pods: KubernetesWorld) -> Iterator[Houses]:
    """The world with what the cases of tests/netpol_cluster add to it."""
    with houses(nine_kubernetes_pods) as made:
        yield made


@pytest.fixture
def tidy(four_houses: Houses, backend: str) -> Iterator[Houses]:
    """The houses without policies."""
    four_houses.world.use(backend)
    yield four_houses
    four_houses.reset()
