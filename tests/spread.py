"""How `./run test` spreads the tests over processes: whole worlds, the longest first.

A group is what shares a world: a file, and of a file that runs on several back ends each back
end. Rooms whose world lives as long as their tests run are one group a back end. A group stays in
one process, in the order of the file. Everything that a test names on the machine (namespaces,
labs, ports, files) carries the process id, lies in its own folder or was free when asked for; what
needs the machine for itself is marked `alone` and runs afterwards, in one process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

_BACKEND = re.compile(r"\[(?:.*[-_])?(nft|nftables|legacy)(?:-.*)?\]$")
_SESSION_WORLDS = {
    "advisories": "advisories",
    "apiserver": "api server",
    "cri": "containerd",
    "cyclonus": "nine pods",
    "netpol": "nine pods",
    "netpol_cluster": "nine pods",
    "netpol_kubernetes": "nine pods of an API server",
}
# Of which the fast tier takes too few cases for a world on each back end.
_UNDIVIDED = ("netpol_kubernetes",)
# The groups that take longest, longest first: begun late, each would run on alone in the end.
_LONGEST = (
    "tests/uml/test_ipip.py",
    "tests/k8s/test_cluster.py",
    "tests/e2e/test_demo.py",
    "nine pods nft",
    "tests/fanout/test_faults.py",
    "tests/simulation/test_simulation.py",
    "api server",
    "advisories nft",
    "tests/calicoctl/test_connectivity_lab.py",
    "advisories",
    "tests/e2e/test_readme.py",
    "tests/e2e/test_planted_faults.py",
    "tests/e2e/test_bad_input.py",
    "tests/bgp/test_interop.py",
    "nine pods of an API server",
    "tests/felix/kernel/test_vxlan.py",
    "tests/cni/test_daemon_faults.py",
    "advisories nftables",
    "tests/policy_random/test_differential.py",
    "nine pods nftables",
    "tests/felix/kernel/test_policy_refused.py",
    "tests/cni/test_executable_daemon.py",
    "tests/policy_random/test_planted.py",
    "tests/cni/test_restore.py",
    "tests/lab_scenarios/test_two_racks.py",
    "tests/lab_scenarios/test_two_reflectors.py",
    "tests/felix/kernel/test_explain_live.py nft",
    "tests/e2e/test_programs.py",
    "tests/libcalico/test_syncer.py",
    "tests/cni/test_check.py",
    "tests/lab_scenarios/test_mixed.py",
    "tests/libcalico/test_etcd_failover.py",
    "tests/manifests/test_rbac.py",
    "tests/cni_conformance/test_verbs.py",
    "tests/e2e/test_cleanup.py nftables",
    "tests/e2e/test_cleanup.py",
    "tests/cni_conformance/test_chains.py",
    "tests/cni/test_clock_jumps.py",
    "tests/cni/test_faults.py",
    "tests/simulation/test_planted.py",
    "tests/libcalico/test_syncer_sinks.py",
    "tests/trace/test_trace_policy.py nftables",
    "tests/cni/test_daemon_add.py",
    "tests/libcalico/test_etcd_reading.py",
    "tests/cni/test_vectors.py",
    "tests/felix/kernel/test_restart.py nftables",
    "api server nft",
    "tests/node/test_checksystem.py",
    "tests/libcalico/test_etcd_store.py",
    "api server nftables",
    "tests/migration/test_from_calico.py",
    "tests/felix/kernel/test_hosts.py nftables",
    "tests/felix/kernel/test_policy_life.py nft",
    "tests/tunnels/test_vxlan.py",
    "tests/trace/test_trace_policy.py nft",
    "tests/e2e/test_namespaces.py",
    "nine pods",
    "tests/bgp_interop/test_bird.py",
    "tests/image/test_calicoctl_file.py",
    "tests/lab_scenarios/test_vxlan.py",
    "tests/felix/dataplane/test_offload.py",
    "tests/cni/test_executable.py",
    "tests/felix/kernel/test_restart_matrix.py nft",
    "tests/felix/dataplane/test_stale_routes.py",
    "tests/e2e/test_pods_and_nodes.py",
)
# Rooms whose tests are few and long; the others fill what is left at the end.
_LONG_ROOMS = (
    "uml", "migration", "lab_scenarios", "bgp_interop", "tunnels", "apiserver", "manifests", "e2e",
    "policy_random", "felix", "bgp", "lab", "node", "cni", "cni_conformance",
)  # fmt: skip


def group(nodeid: str) -> str:
    """The group of a test: its file or its room's world, and its back end. Pure."""
    path, _, name = nodeid.partition("::")
    room = path.split("/")[1] if path.count("/") > 1 else ""
    backend = None if room in _UNDIVIDED else _BACKEND.search(name)
    world = _SESSION_WORLDS.get(room, path)
    return f"{world} {backend.group(1)}" if backend else world


def rank(name: str) -> int:
    """Where a group stands in the queue: the longest, then rooms of few long tests. Pure."""
    if name in _LONGEST:
        return _LONGEST.index(name)
    room = name.split("/")[1] if "/" in name else ""
    place = _LONG_ROOMS.index(room) if room in _LONG_ROOMS else len(_LONG_ROOMS)
    return len(_LONGEST) + place


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """xdist's scheduler of scopes, with our groups as scopes and the longest first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
            super()._assign_work_unit(node)

    return Scheduler(config, log)
