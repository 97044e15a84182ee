"""A lab whose etcd asks for client certificates: everything works, and without one nothing does."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import pytest

from lab import cluster, datastore, pods, proc
from lab.cluster import Lab
from libcalico.process import paths
from tests.e2e.conftest import say
from tests.e2e.test_settings import POOL
from tests.support.patience import HANG


@pytest.fixture(scope="module")
def secured() -> Iterator[Lab]:
    """One node with agents; etcd with `--client-cert-auth`."""
    name = f"tls{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", tls=True, say=say)
    try:
        yield lab
    finally:
        cluster.down(name)


@pytest.mark.promise("M-191", "M-199")
@pytest.mark.promise("F-116")
def test_agents_calicoctl_and_pods_work_with_certificates(secured: Lab) -> None:
    node = secured.nodes[0]
    node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL)
    assert "node1" in node.run(["calicoctl", "get", "nodes"]).stdout
    one, two = (pods.add(secured, name, "node1") for name in ("one", "two"))
    assert pods.answers(secured, one, two.address)
    again = cluster.find(secured.name)
    keys = again.etcd.run(["etcdctl", "get", "--prefix", "--keys-only", "/calico/"]).stdout
    assert "/workloadendpoints/default/node1-k8s-one-eth0" in keys
    for pod in (one, two):
        pods.remove(secured, pod)


def test_keys_are_for_root_alone(secured: Lab) -> None:
    node = secured.nodes[0]
    for file in (*datastore.FILES.values(), str(paths.CALICOCTL_CONFIG)):
        assert stat.S_IMODE(node.path(file).stat().st_mode) == 0o600
    assert stat.S_IMODE(node.path(datastore.CLIENT_PKI).stat().st_mode) == 0o700


@pytest.mark.promise("F-116")
@pytest.mark.parametrize("missing", ["key and certificate", "authority"])
def test_a_client_without_certificate_is_refused_and_told_so(secured: Lab, missing: str) -> None:
    node = secured.nodes[0]
    ca = datastore.FILES["ETCD_CA_CERT_FILE"]
    text = (
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n"
        f"  datastoreType: etcdv3\n  etcdEndpoints: {secured.plan.etcd_endpoint}\n"
    )
    if missing == "key and certificate":
        text += f"  etcdCACertFile: {ca}\n"
    node.path("/etc/calico/other.cfg").write_text(text)
    command = ["calicoctl", "get", "nodes", "-c", "/etc/calico/other.cfg"]

    def told() -> bool:
        """Why it is, it looks for during one second: a busy machine may need another try."""
        done = node.run(command, check=False)
        said = done.stdout + done.stderr
        assert done.returncode != 0
        assert "node1" not in said
        assert "10.99.0.1:2379" in said
        return "certificate" in said.lower()

    proc.wait_until(told, "the certificate is named", timeout=HANG)


def test_plain_text_is_refused(secured: Lab) -> None:
    etcdctl = ["etcdctl", "--endpoints=http://10.99.0.1:2379", "--command-timeout=2s", "get", "/"]
    assert secured.nodes[0].run(etcdctl, check=False).returncode != 0
