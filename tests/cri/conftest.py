"""The image, and a node with containerd that all files share; what runs at which size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri import image
from tests.cri.binaries import CONTAINERD2, LIBCNI_DRIVER, Programs
from tests.cri.containerd import unusable
from tests.cri.world import World, world
from tests.k8s.binaries import BuildError

HERE = Path(__file__).parent
FULL_SIZE = "MUSLIN_FULL_SIZE" in os.environ
SLOW = ("test_collection.py", "test_failures.py", "test_pods.py", "test_status.py")
"""Files whose waits are minutes in sum: at full size only."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One node and its three pods are the fast tier."""
    if FULL_SIZE:
        return
    wanted = "cni" if "MUSLIN_EVERY_ITEM" in os.environ else ""  # what ./run cni-table asks
    left = [
        item
        for item in items
        if item.path.parent == HERE and item.path.name in SLOW
        if not (wanted and item.get_closest_marker(wanted))
    ]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


def programs(wanted: Programs, *, build: bool) -> Path:
    """Where they are; the test is skipped where they are not and cannot be built, or may not."""
    if missing := wanted.missing():
        if not build:
            pytest.skip(missing)
        try:
            wanted.build()
        except BuildError as error:
            pytest.skip(f"{missing} ({error})")
    return wanted.folder()


@pytest.fixture(scope="session")
def pause(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sandbox image, on a machine that can run it."""
    if reason := unusable():
        pytest.skip(reason)
    return image.build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory, pause: Path) -> Iterator[World]:
    """Debian's containerd; portmap and bandwidth follow our plugin."""
    folder = tmp_path_factory.mktemp("containerd")
    with world(f"cri{os.getpid()}", folder, pause, chain="portmap,bandwidth") as made:
        yield made


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory, pause: Path) -> Iterator[World]:
    """containerd 2, and our plugin alone: Debian's portmap does not speak 1.1.0."""
    found = programs(CONTAINERD2, build=False)
    folder = tmp_path_factory.mktemp("containerd2")
    with world(f"cri2-{os.getpid()}", folder, pause, chain="", programs=found) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves on a node that others share is taken away, and this test says so."""
    names = [one for one in ("node", "newer") if one in request.fixturenames]
    worlds: list[World] = [request.getfixturevalue(one) for one in names]
    yield
    left = [one for each in worlds for one in each.take_away()]
    assert not left, f"taken away at the end, for the test left it: {', '.join(left)}"


@pytest.fixture(scope="session")
def driver() -> Path:
    """The real libcni behind a command line; a small build, made here at full size."""
    return programs(LIBCNI_DRIVER, build=FULL_SIZE) / "libcni_driver"
