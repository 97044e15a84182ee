"""The lab of tests/netpol, with labels on its namespaces, on either back end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cyclonus.world import Runner
from tests.felix.in_kernel import BACKENDS
from tests.netpol.world import World

# How many cases of each family, evenly spread, the fast tier measures on each back end.
_SHARE = {"peers": 2, "ports": 2}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    measured = [item for item in here if item.name.startswith("test_packets_agree[")]
    groups = [item.name.partition("[")[2].partition("/")[0] for item in measured]
    sizes, seen = Counter(groups), Counter[str]()
    left = set()
    for item, group in zip(measured, groups, strict=True):
        share = min(sizes[group], _SHARE.get(group.rpartition("-")[2], 1))
        number = seen[group]
        seen[group] += 1
        # The other back end takes the cases between, so that together they are twice as many.
        shift = sizes[group] // (2 * share) if group.startswith("nftables") else 0
        if (number - shift) % (sizes[group] // share) or number // (sizes[group] // share) >= share:
            left.add(item)
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


@pytest.fixture(scope="module", params=BACKENDS)
def runner(request: pytest.FixtureRequest, nine_pods: World) -> Iterator[Runner]:
    """One runner a back end; what a case changes, the next one takes back."""
    nine_pods.use(request.param)
    made = Runner(nine_pods)
    yield made
    made.leave()
    print(f"{request.param}: right only at a later look: {made.late or 'none'}")
