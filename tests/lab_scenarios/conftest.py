"""The fast tier takes four of the scenarios; what is named by hand runs all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAST = ("readmes", "two_racks", "two_reflectors", "mixed", "vxlan")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    left = [
        item
        for item in items
        if item.path.parent == HERE and item.path.stem.removeprefix("test_") not in FAST
    ]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
