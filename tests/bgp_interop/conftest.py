"""One world for each speaker, and a clean start for each case."""

from __future__ import annotations

from collections.abc import Iterator

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
