"""Real clusters, each for one file; the fast tier takes one case, where the programs are built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cri.containerd import unusable
from tests.k8s import binaries, images

HERE = Path(__file__).parent
PLAIN = ("test_binaries.py",)
"""Files that need no cluster."""
FAST: tuple[str, ...] = ()


def lacking() -> str:
    """Why no cluster can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "a cluster needs root"
    if not images.busybox():
        return "Debian's busybox-static is not installed"
    return binaries.missing() or unusable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE and item.path.name not in PLAIN]
    if "MUSLIN_FULL_SIZE" not in os.environ:
        left = [item for item in mine if item.name not in FAST]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)
        mine = [item for item in mine if item.name in FAST]
    reason = lacking() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.k8s)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images of the tests' own pods."""
    return images.build(tmp_path_factory.mktemp("images"))
