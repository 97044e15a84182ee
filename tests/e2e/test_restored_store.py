"""A store that is put back to an earlier state under running nodes (docs/datastores.md).

Real snapshots by etcdctl. Two nodes with two pods each, of which one a node is younger than the
backup, and a pod of the backup that is gone since. Named by path only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab import cluster, datastore, pods, proc
from lab.cluster import Lab
from lab.errors import LabError
from lab.pods import Pod
from tests.e2e.conftest import say
from tests.support.patience import HANG
from tests.tiers import FULL_SIZE

pytestmark = pytest.mark.skipif(
    FULL_SIZE not in os.environ, reason="boots a lab of its own: named by path only"
)
PATIENCE = HANG
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: small}
spec: {cidr: 10.65.0.0/24, blockSize: 29, ipipMode: Never, vxlanMode: Never}
"""
BACKUP, PRIVATE = "/tmp/backup", "http://127.0.0.1:12379"


@dataclass
class Site:
    """The lab and its pods, by name."""

    lab: Lab
    pods: dict[str, Pod] = field(default_factory=dict)

    def add(self, name: str, node: str) -> Pod:
        self.pods[name] = pods.add(self.lab, name, node, timeout=PATIENCE)
        return self.pods[name]

    def remove(self, name: str) -> None:
        pods.remove(self.lab, self.pods.pop(name), timeout=PATIENCE)

    def ctl(self, *words: str, check: bool = True, endpoint: str = "") -> str:
        """calicoctl, on the machine of etcd; at `endpoint`, if one is given."""
        given = endpoint or self.lab.plan.etcd_endpoint
        environment = {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": given}
        done = self.lab.etcd.run(
            ["calicoctl", *words], environment=environment, check=check, timeout=PATIENCE
        )
        return done.stdout + done.stderr

    def routed(self, node: str) -> set[str]:
        """Where a node has a route to an interface of a pod."""
        lines = self.lab.machine(node).run(["ip", "route", "show"]).stdout.splitlines()
        return {line.split()[0] for line in lines if " dev cali" in line}

    def reaches(self, here: str, there: str) -> bool:
        try:
            return pods.ping(self.lab, self.pods[here], self.pods[there].address)
        except LabError:
            return False

    def settled(self, node: str) -> bool:
        """Whether a node gives out addresses again (tests/cni/test_restored_store.py)."""
        status = self.lab.machine(node).run(["cat", "/var/run/calico/status/cni.json"]).stdout
        return "earlier state" not in status

    def endpoints(self) -> str:
        return self.ctl("get", "workloadendpoints", "--all-namespaces")


def etcd_pids(lab: Lab) -> list[int]:
    return [pid for pid in lab.etcd.pids() if proc.command_of(pid).split(" ")[0] == "etcd"]


def stop_etcd(lab: Lab) -> None:
    for pid in etcd_pids(lab):
        os.kill(pid, signal.SIGTERM)
    proc.wait_until(lambda: not etcd_pids(lab), "etcd ended", timeout=PATIENCE)


def put_back(site: Site) -> None:
    """Restore, and lock before anybody else may ask: the store answers here alone at first."""
    lab = site.lab
    stop_etcd(lab)
    lab.etcd.run(["rm", "-rf", datastore.DATA])
    lab.etcd.run([
        "etcdctl", "snapshot", "restore", BACKUP, f"--data-dir={datastore.DATA}", "--name=lab",
        "--initial-cluster=lab=http://127.0.0.1:2380", "--initial-cluster-token=restored",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
    ])  # fmt: skip
    alone = [
        f"{word.partition('=')[0]}={PRIVATE}" if "-client-urls" in word else word
        for word in datastore.command(lab.plan)
    ]
    lab.etcd.start(alone, output=datastore.LOG)
    datastore.wait(lab.etcd, timeout=PATIENCE)
    site.ctl("datastore", "migrate", "lock", endpoint=PRIVATE)
    stop_etcd(lab)
    datastore.start(lab.etcd, lab.plan)
    datastore.wait(lab.etcd, timeout=PATIENCE)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    name = f"restored{os.getpid()}"
    lab = cluster.up(name, nodes=2, topology="flat", say=say)
    try:
        made = Site(lab)
        lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOL.encode(), timeout=PATIENCE)
        for pod, node in (("a", "node1"), ("b", "node2"), ("gone", "node2")):
            made.add(pod, node)
        yield made
    finally:
        cluster.down(name)


def until(check: object, what: str) -> None:
    assert callable(check)
    proc.wait_until(check, what, timeout=PATIENCE)


@pytest.mark.promise("M-126")
def test_nodes_come_to_the_restored_state_and_no_address_is_given_twice(
    site: Site, tmp_path: Path
) -> None:
    lab = site.lab
    lab.etcd.run(["etcdctl", f"--endpoints={lab.plan.etcd_endpoint}", "snapshot", "save", BACKUP])
    gone = site.pods["gone"].address
    site.remove("gone")
    site.add("young-a", "node1")
    site.add("young-b", "node2")
    until(lambda: site.reaches("young-a", "young-b"), "young pods reach each other")
    put_back(site)

    for one, other in (("a", "b"), ("b", "a")):
        until(lambda o=one, t=other: site.reaches(o, t), f"{one} reaches {other}")
    assert "gone" in site.endpoints()
    # Locked: a pod that comes now is refused, so no address of a living pod is given again.
    with pytest.raises(LabError, match="code 11"):
        site.add("early", "node1")

    # What the backup has and nobody runs: its endpoint is taken away, its address is a leak.
    path = "/calico/resources/v3/projectcalico.org/workloadendpoints/default"
    command = ["etcdctl", f"--endpoints={lab.plan.etcd_endpoint}", "del"]
    assert lab.etcd.run([*command, f"{path}/node2-k8s-gone-eth0"]).stdout.strip() == "1"
    reports = [f"/tmp/{number}.json" for number in (1, 2)]
    said = [site.ctl("ipam", "check", "-o", report, check=False) for report in reports]
    assert all("found 1 problems" in text for text in said), said
    assert gone in lab.etcd.run(["cat", reports[0]]).stdout
    released = [word for report in reports for word in ("--from-report", report)]
    site.ctl("ipam", "release", *released)

    # The young pods are restarted, as docs/datastores.md says.
    site.remove("young-a")
    site.remove("young-b")
    site.ctl("datastore", "migrate", "unlock")
    until(lambda: site.settled("node1") and site.settled("node2"), "no pod is waited for")
    for number, node in enumerate(("node1", "node2", "node1", "node2")):
        site.add(f"new{number}", node)
    addresses = [pod.address for pod in site.pods.values()]
    assert len(set(addresses)) == len(addresses), addresses
    for one, other in (("a", "new1"), ("new0", "b"), ("new2", "new3")):
        until(lambda o=one, t=other: site.reaches(o, t), f"{one} reaches {other}")
    # Nodes have come to what is stored: to every pod a route, and none to what is no more.
    for node in ("node1", "node2"):
        here = {pod.address for pod in site.pods.values() if pod.node == node}
        until(lambda n=node, h=here: site.routed(n) == h, f"routes of {node}")
    until(
        lambda: "found 0 problems" in site.ctl("ipam", "check", check=False),
        "ipam check is content",
    )
