"""A cluster without a network comes up, runs what needs none, and leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lab import proc
from tests.cri.containerd import CGROUPS
from tests.k8s.api import ready_pods
from tests.k8s.cluster import DISKS, cluster
from tests.k8s.pods import pod
from tests.k8s.wires import PREFIX


def traces(name: str) -> dict[str, list[str]]:
    """What there is of a cluster on this machine, by kind."""
    spaces = [path.name for path in Path("/run/netns").iterdir() if path.name.startswith(name)]
    groups = [str(path) for path in CGROUPS.rglob(f"{name}*")]
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    mounts = [
        line.split()[1]
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if DISKS in line or name in line
    ]
    programs = {}
    for pid in proc.all_pids():
        try:
            programs[pid] = os.readlink(f"/proc/{pid}/exe") if pid != os.getpid() else ""
        except OSError:
            continue
    running = [
        f"{pid} {program}"
        for pid, program in programs.items()
        if Path(program).name in ("hyperkube", "containerd", "containerd-shim-runc-v2", "etcd")
        and (name in proc.command_of(pid) or DISKS in proc.command_of(pid))
    ]
    disks = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{DISKS}*")]
    return {
        "namespaces": spaces,
        "groups": groups,
        "links": [link for link in links if link.startswith(PREFIX)],
        "mounts": mounts,
        "programs": running,
        "disks": disks,
    }


def test_what_a_cluster_started_is_gone_with_it(tmp_path: Path, archives: list[Path]) -> None:
    with cluster(tmp_path, archives) as made:
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
        name, pids = made.wires.name, [node.pid for node in made.nodes.values()]
        there = traces(name)
        # Links and mounts are in the namespaces; everything else is to be seen, while it is there.
        shown = {kind for kind, found in there.items() if found}
        assert shown >= {"namespaces", "groups", "programs", "disks"}, there
    assert not any(traces(name).values()), traces(name)
    assert not [pid for pid in pids if proc.start_time(pid) is not None]
