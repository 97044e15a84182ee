"""One world for the whole session; every case leaves it as it found it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.netpol.world import World, world


@pytest.fixture(scope="session")
def _world() -> Iterator[World]:
    with world(f"netpol{os.getpid()}") as made:
        yield made


@pytest.fixture
def clean(_world: World) -> Iterator[World]:
    """The world without policies."""
    _world.said.clear()
    yield _world
    _world.reset()
