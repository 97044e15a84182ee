"""Every case leaves the shared world as it found it, on either back end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.felix.in_kernel import BACKENDS, NFTABLES
from tests.netpol.world import World

# Every so manieth scenario the fast tier runs on nftables, the others on iptables; full size runs
# all 96.
_EVERY = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    twins = [item for item in here if item.name.startswith(f"test_scenario[{NFTABLES}-")]
    taken = twins[::_EVERY]
    elsewhere = {item.nodeid.replace(f"[{NFTABLES}-", f"[{BACKENDS[0]}-") for item in taken}
    left = set(twins) - set(taken) | {item for item in here if item.nodeid in elsewhere}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every scenario runs on iptables-nft and on nftables."""
    name: str = request.param
    return name


@pytest.fixture
def clean(nine_pods: World, backend: str) -> Iterator[World]:
    """The world without policies."""
    nine_pods.use(backend)
    nine_pods.said.clear()
    yield nine_pods
    nine_pods.reset()
