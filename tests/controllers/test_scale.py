"""The bench of large clusters, at a small size: a restart writes nothing, a change one object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench._controllers_objects import Shape
from tests.bench.controllers import measure


@pytest.mark.asyncio
@pytest.mark.apiserver
@pytest.mark.promise("F-114")
async def test_a_cluster_of_objects_is_taken_up_and_each_change_costs_one_write(
    tmp_path: Path,
) -> None:
    shape = Shape(nodes=30, pods=300, policies=20)
    report = await measure(tmp_path, shape, 5)
    cold = report["cold"]["writes"]
    assert cold["policy"] == shape.policies
    assert cold["node"] == shape.nodes
    assert cold["namespace"] >= shape.spaces
    assert "workloadendpoint" not in cold, "their nodes wrote these whole"
    assert report["restart"]["etcd_writes"] == 0
    assert not report["restart"]["writes"]
    assert not report["restart"]["api_writes"], "by the audit log"
    assert report["restart"]["api_requests"]["list pods"] == 1, "for all controllers together"
    for kind, figures in report["changes"].items():
        assert figures["api_requests_each"] == 0, kind
        assert figures["etcd_writes_each"] == 1, kind
