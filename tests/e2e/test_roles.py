"""A whole node under the etcd role of nodes: start-up, felix, BGP, CNI; the admin is another user.

etcd knows its clients by the CN of their certificates. The users and roles are made, by the
script that is shipped, before the first agent starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import agents, cluster, pods
from lab.cluster import Lab
from tests.e2e.conftest import say
from tests.e2e.test_settings import POOL

SCRIPT = Path(__file__).parent.parent.parent / "manifests" / "etcd-roles"
ROOT = "--user=root:root"
CLIENT = "muslin-lab-client"
PROFILE = b"""
---
apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: kns.default}
spec: {ingress: [{action: Allow}], egress: [{action: Allow}]}
"""
"""What the controllers would write, under their own role."""


@pytest.fixture(scope="module")
def ruled() -> Iterator[Lab]:
    """One node, whose certificate has the role `calico-node` and no other."""
    name = f"rol{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", tls=True, agents_too=False, say=say)
    try:
        etcd = cluster.find(name).etcd
        etcd.run([str(SCRIPT)])
        for words in (
            ["user", "add", CLIENT, "--no-password"],
            ["user", "grant-role", CLIENT, "calico-node"],
            ["user", "add", "root:root"],
            ["user", "grant-role", "root", "root"],
            ["auth", "enable"],
        ):
            etcd.run(["etcdctl", *words])
        cluster.start_agents(lab, say)
        yield lab
    finally:
        cluster.down(name)


@pytest.mark.promise("F-111")
def test_a_node_lives_under_the_role_of_nodes(ruled: Lab) -> None:
    node, etcd = ruled.nodes[0], cluster.find(ruled.name).etcd
    refused = node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL, check=False)
    assert refused.returncode != 0
    assert "does not allow" in refused.stdout + refused.stderr
    admin = "/etc/calico/admin.cfg"
    text = node.path("/etc/calico/calicoctl.cfg").read_text()
    node.path(admin).write_text(text + "  etcdUsername: root\n  etcdPassword: root\n")
    node.path(admin).chmod(0o600)
    node.run(["calicoctl", "apply", "-c", admin, "-f", "-"], stdin=POOL + PROFILE)
    one, two = (pods.add(ruled, name, "node1") for name in ("one", "two"))
    assert pods.answers(ruled, one, two.address), agents.log_tail(node)
    keys = etcd.run(["etcdctl", ROOT, "get", "--prefix", "--keys-only", "/calico/"]).stdout
    for wanted in (
        "/nodes/node1",
        "/workloadendpoints/default/node1-k8s-one-eth0",
        "/ipam/v2/host/node1/ipv4/block/",
        "/ipam/v2/handle/",
        "/clusterinformations/default",
        "/tiers/kube-baseline",
    ):
        assert wanted in keys, keys
    for pod in (one, two):
        pods.remove(ruled, pod)
    keys = etcd.run(["etcdctl", ROOT, "get", "--prefix", "--keys-only", "/calico/"]).stdout
    assert "/workloadendpoints/" not in keys
    assert "permission denied" not in agents.log_tail(node)
    log = node.path(str(agents.LOG)).read_text().splitlines()
    assert [line for line in log if "does not allow" in line] == []
