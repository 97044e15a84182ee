"""The stage of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cni_conformance.stage import Stage


@pytest.fixture(scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("conformance"))
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def stage(_stage: Stage, request: pytest.FixtureRequest) -> Stage:
    """What the checks of one file share."""
    _stage.request = request
    return _stage
