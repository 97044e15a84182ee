"""Every case leaves the shared world as it found it, on either back end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.felix.in_kernel import BACKENDS
from tests.netpol.world import World
from tests.netpol_cluster.houses import Houses, houses

FAST = ("CNPAdminTierEgressTCP", "CNPAdminTierIntegration", "CNPBaselineTierEgressNodePeers")
"""What the fast tier runs on each back end; full size runs all."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    cases = [item for item in here if item.name.startswith("test_case[")]
    left = {item for item in cases if not item.name.endswith(tuple(f"-{one}]" for one in FAST))}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every case runs on iptables-nft and on nftables."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def four_houses(nine_pods: World) -> Iterator[Houses]:
    """The lab of tests/netpol with what these cases add to it."""
    with houses(nine_pods) as made:
        yield made


@pytest.fixture
def clean(four_houses: Houses, backend: str) -> Iterator[Houses]:
    """The world without policies."""
    four_houses.world.use(backend)
    yield four_houses
    four_houses.reset()
