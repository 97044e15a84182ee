"""Real clusters, each for one file; the fast tier takes one case, where the programs are built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.containerd import unusable
from tests.k8s import binaries, images, product
from tests.k8s.world import World, world

HERE = Path(__file__).parent
PLAIN = ("test_binaries.py",)
"""Files that need no cluster."""
FAST = ("test_the_manifest_makes_a_bare_cluster_work[etcd]",)
FULL_SIZE = "MUSLIN_FULL_SIZE" in os.environ


def lacking() -> str:
    """Why no cluster can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "a cluster needs root"
    if not images.busybox():
        return "Debian's busybox-static is not installed"
    # At full size the images are built, whatever that takes.
    return binaries.missing() or unusable() or ("" if FULL_SIZE else product.images_missing())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE and item.path.name not in PLAIN]
    if not FULL_SIZE:
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


@pytest.fixture(scope="session")
def mine(tmp_path_factory: pytest.TempPathFactory) -> product.Images:
    """Our images, built from the tree as it is."""
    return product.build_images(tmp_path_factory.mktemp("ours"), both=FULL_SIZE)


@pytest.fixture(scope="session", params=list(product.INSTALL))
def installed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mine: product.Images,
    archives: list[Path],
) -> Iterator[World]:
    """A cluster with our manifest of one datastore mode, all Ready; one at a time."""
    with world(request.param, tmp_path_factory.mktemp("cluster"), mine, archives) as made:
        yield made
