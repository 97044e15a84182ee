"""One world for each speaker, and a clean start for each case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bgp_interop.fabric import Fabric, fabric


@pytest.fixture(scope="module")
def _fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    with fabric(request.module.ROUTER) as made:
        yield made


@pytest.fixture
def lab(_fabric: Fabric) -> Fabric:
    """The speaker's world as every case finds it."""
    _fabric.clear()
    return _fabric


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The whole lab of `test_bird_node.py` is for runs at full size."""
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    here = Path(__file__).parent / "test_bird_node.py"
    left = [item for item in items if item.path == here]
    items[:] = [item for item in items if item.path != here]
    config.hook.pytest_deselected(items=left)
