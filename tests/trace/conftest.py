"""The fast tier takes some of the planted causes; what is named by hand meets them all.

Which cause is named for which lines is tested with written lines, all of it and in each tier
(tests/calicoctl/test_tracing_cause.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
THINNED = ("test_trace_routes.py", "test_trace_pods.py")
FAST = (
    "test_the_next_link_takes_less_than_the_pod_sends",
    "test_the_reverse_path_filter_drops_it",
    "test_a_service_leads_to_an_endpoint_that_is_gone",
    "test_nothing_listens_on_the_port",
    "test_the_pods_own_attempt_is_followed_and_none_is_sent",
    "test_a_killed_watch_leaves_nothing_behind",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    left = [
        item
        for item in items
        if item.path.parent == HERE and item.path.name in THINNED and not item.name.startswith(FAST)
    ]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
