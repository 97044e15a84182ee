"""Many simulated nodes follow the store, as `./run bench fanout` has them by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench._fanout_world import world
from tests.support.patience import HANG

NODES, CHANGES = 40, 30


@pytest.mark.promise("F-114")
@pytest.mark.parametrize("proxies", [0, 2])
def test_each_of_many_nodes_gets_each_change_once(tmp_path: Path, proxies: int) -> None:
    with world(tmp_path, proxies) as place:
        place.nodes.open(NODES, jitter_ms=0)
        place.nodes.ask("mark")
        place.write(CHANGES)
        place.nodes.until(CHANGES, HANG)
        came = place.nodes.report()
    assert came["events"] == came["stamped"] == NODES * CHANGES
    assert came["lost"] == 0
    assert came["bytes"] < NODES * CHANGES * 1500, "1.5 KB for a change and node, at most"


def test_nodes_that_were_away_get_what_they_missed(tmp_path: Path) -> None:
    with world(tmp_path, 0) as place:
        place.nodes.open(NODES, jitter_ms=0)
        revision = place.etcd.revision()
        place.nodes.ask("close")
        place.write(CHANGES)
        place.resume_at(revision + 1)
        place.nodes.ask("mark")
        place.nodes.open(NODES, jitter_ms=100)
        place.nodes.until(CHANGES, HANG)
        assert place.nodes.report()["stamped"] == NODES * CHANGES
