"""A cluster without a network comes up, runs what needs none, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import proc
from tests.k8s import traces
from tests.k8s.api import ready_pods
from tests.k8s.cluster import cluster
from tests.k8s.pods import pod
from tests.k8s.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_cluster_started_is_gone_with_it(
    release: str, tmp_path: Path, archives: list[Path]
) -> None:
    with cluster(tmp_path, archives, release=RELEASES[release]) as made:
        hosted = pod("hosted", {"app": "hosted"}, "node1", hostNetwork=True)
        hosted["spec"]["tolerations"] = [{"operator": "Exists"}]
        made.api.wait(
            "the service account's controller works",
            lambda: made.api.find("/api/v1/namespaces/default/serviceaccounts/default") is not None,
        )
        made.api.apply(hosted)
        where = "/api/v1/namespaces/default/pods"
        made.api.wait("a pod runs", lambda: len(ready_pods(made.api.items(where))) == 1)
        assert set(made.conditions("Ready").values()) == {"False"}
        said = made.api.kubectl("exec", "hosted", "--", "hostname").stdout.strip()
        assert said == "node1"
        pids = [node.pid for node in made.nodes.values()]
        there = traces.of(made)
        shown = {kind for kind, found in there.items() if found}
        assert shown >= {"namespaces", "groups", "programs", "disks"}, there
    assert not any(traces.of(made).values()), traces.of(made)
    assert not [pid for pid in pids if proc.start_time(pid) is not None]
