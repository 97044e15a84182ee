"""Which tests boot a guest in the fast tier: one case of IP-in-IP; all at full size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FAST = "test_everything_goes_through_tunl0"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    here = Path(__file__).parent
    left = [item for item in items if item.path.parent == here and item.name != FAST]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
