"""What is read out of Kubernetes' objects, and what happens where there is nothing to read."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from pathlib import Path

import pytest

from libcalico import apiconfig
from node import kubernetes
from node.kubernetes import ClusterFacts
from tests.support.etcd import free_ports

KUBEADM = """\
apiServer: {extraArgs: []}
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {dnsDomain: cluster.local, podSubnet: %s, serviceSubnet: 10.96.0.0/16}
"""


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        (KUBEADM % "10.244.0.0/16", ["10.244.0.0/16"]),
        (KUBEADM % '"10.244.0.0/16,fd65::/48"', ["10.244.0.0/16", "fd65::/48"]),
        (KUBEADM % '""', []),
        (KUBEADM % "banana", []),
        ("networking: [", []),
        ("networking: {}", []),
        ("just text", []),
        ("", []),
    ],
)
def test_the_pods_ranges_of_kubeadm(text: str, networks: list[str]) -> None:
    assert kubernetes.pod_subnets(text) == tuple(ip_network(one) for one in networks)


def test_addresses_that_are_none_are_left_out() -> None:
    found = kubernetes.addresses(["10.0.0.5", "node1.example", "fd00::5"])
    assert [str(one) for one in found] == ["10.0.0.5", "fd00::5"]


def read(environ: dict[str, str], account: Path) -> ClusterFacts:
    config = apiconfig.from_environment(environ)
    return asyncio.run(kubernetes.read(environ, config, "n1", account))


def test_without_kubernetes_nothing_is_asked(tmp_path: Path) -> None:
    assert read({}, tmp_path) == ClusterFacts()


def test_an_api_without_credentials_or_without_answer_is_told(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    assert "token" in read(pod, tmp_path).problem
    closed = {"K8S_API_ENDPOINT": f"http://127.0.0.1:{free_ports(1)[0]}"}
    found = read(closed, tmp_path)
    assert "refused" in found.problem.lower()
    assert (found.internal, found.pod_networks) == ((), ())
