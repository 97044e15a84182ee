"""What the tests of the executable share."""

from __future__ import annotations

import pytest

from tests.cni.executable import BUILDS, Build


@pytest.fixture(params=BUILDS, ids=lambda build: build.label)
def exe(request: pytest.FixtureRequest) -> Build:
    """Once the C executable, once its Python twin: both must behave alike."""
    found = request.param
    assert isinstance(found, Build)
    return found
