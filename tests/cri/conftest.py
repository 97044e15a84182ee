"""The image, once a session; a node with containerd, once a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri import image
from tests.cri.world import World, world


@pytest.fixture(scope="session")
def pause(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sandbox image."""
    return image.build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, pause: Path) -> Iterator[World]:
    """Debian's containerd; portmap and bandwidth follow our plugin."""
    folder = tmp_path_factory.mktemp("containerd")
    with world(f"cri{os.getpid()}", folder, pause, chain="portmap,bandwidth") as made:
        yield made
