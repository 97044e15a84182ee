"""Real clusters, each for one file; the fast tier takes one case, where the programs are built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.containerd import unusable
from tests.k8s import images, product, traces
from tests.k8s.releases import RELEASES, Release
from tests.k8s.world import CASES, World, world

HERE = Path(__file__).parent
PLAIN = ("test_binaries.py",)
"""Files that need no cluster."""
LATER = ("test_changes.py", "test_removal.py")
"""Files that leave a cluster other than they found it, in the order in which they run."""
FAST = ("test_the_manifest_makes_a_bare_cluster_work[etcd]",)
FULL_SIZE = "MUSLIN_FULL_SIZE" in os.environ


def lacking() -> str:
    """Why no cluster can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "a cluster needs root"
    if not images.busybox():
        return "Debian's busybox-static is not installed"
    # At full size the images are built, whatever that takes.
    return unusable() or ("" if FULL_SIZE else product.images_missing())


def release(item: pytest.Item) -> Release:
    """The version of Kubernetes that a test runs."""
    chosen = getattr(item, "callspec", None)
    told: dict[str, str] = chosen.params if chosen else {}
    if "installed" in told:
        return CASES[told["installed"]].release
    return RELEASES[told.get("release", "current")]


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
        if why := reason or release(item).missing():
            item.add_marker(pytest.mark.skip(reason=why))
    # A cluster serves the tests of several files; those that change it come last.
    places = {item: 1 + LATER.index(item.path.name) for item in mine if item.path.name in LATER}
    items.sort(key=lambda item: places.get(item, 0))


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images of the tests' own pods."""
    return images.build(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def mine(tmp_path_factory: pytest.TempPathFactory) -> product.Images:
    """Our images, built from the tree as it is."""
    return product.build_images(tmp_path_factory.mktemp("ours"), both=FULL_SIZE)


@pytest.fixture(scope="package", params=list(CASES))
def installed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mine: product.Images,
    archives: list[Path],
) -> Iterator[World]:
    """A cluster with our manifest of one datastore mode, all Ready; one at a time."""
    folder = tmp_path_factory.mktemp("cluster")
    with world(CASES[request.param], folder, mine, archives) as made:
        yield made
    left = traces.of(made.cluster)
    assert not any(left.values()), f"the cluster left something behind: {left}"


@pytest.fixture
def space(installed: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test's own."""
    name = request.node.name.partition("[")[0].replace("_", "-")[5:45].strip("-")
    yield installed.space(name)
    installed.forget(name)
