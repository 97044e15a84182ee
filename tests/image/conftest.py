"""The image of a node, built once for the room and unpacked."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manifests.image import build, cache, debian
from manifests.image.contents import NODE
from tests.tiers import FULL_SIZE

FULL = bool(os.environ.get(FULL_SIZE))


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image as a container runtime has it: its configuration and its files."""

    image: build.Image
    config: dict[str, Any]
    members: list[tarfile.TarInfo]
    root: Path


def parts(archive: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The configuration of an image archive, and its layers."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:

        def blob(digest: str) -> bytes:
            found = opened.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found is not None
            return found.read()

        index = opened.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))
        return config, [blob(layer["digest"]) for layer in manifest["layers"]]


@pytest.fixture(scope="session")
def fetched() -> None:
    """Skips where the packages and wheels would have to be downloaded in the fast tier."""
    if os.geteuid() != 0:
        pytest.skip("unpacking an image with its owners needs root")
    if not FULL and not list(cache.folder("image", "debs").glob("*.lock")):
        pytest.skip("no image was ever built here: ./run build image")
    if not debian.LISTS.exists():
        pytest.skip("no apt here")


@pytest.fixture(scope="session")
def node(fetched: None, tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """The image of a node."""
    made = build.image(NODE)
    config, layers = parts(made.archive)
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    members = []
    for layer in layers:
        subprocess.run(["tar", "-xzpC", root], input=layer, check=True)
        with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
            members += opened.getmembers()
    return Unpacked(made, config, members, root)
