"""What is read out of Kubernetes' objects, and what happens where there is nothing to read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_network
from pathlib import Path

import pytest

from libcalico import apiconfig
from node.identity import kubernetes
from node.identity.kubernetes import ClusterFacts
from node.settings.environment import settings
from node.start import redetect
from tests.support.etcd import free_ports
from tests.support.patience import HANG

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


NODE = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.5"}]}}


@pytest.fixture
def api() -> Iterator[tuple[str, list[str]]]:
    """An API that has the node, no ConfigMap and a list of what it was asked."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            body = NODE if "/nodes/" in self.path else {"kind": "Status", "code": 404}
            text = json.dumps({"metadata": {"name": "n1"}, **body}).encode()
            self.send_response(200 if "/nodes/" in self.path else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    serving.join()
    server.server_close()


def test_who_made_the_cluster_is_asked_at_the_start_alone(
    api: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that answers late is not what this is about.
    monkeypatch.setattr(kubernetes, "LIMIT", HANG)
    server, asked = api
    environ = {"K8S_API_ENDPOINT": server, "IP": "autodetect", "DATASTORE_TYPE": "kubernetes"}
    assert read(environ, tmp_path).internal == kubernetes.addresses(["10.0.0.5"])
    assert [path for path in asked if "configmaps/kubeadm-config" in path]
    asked.clear()

    async def run(watcher: redetect.Watcher) -> None:
        assert watcher._source is not None
        for _ in range(3):
            assert await watcher._source() == kubernetes.addresses(["10.0.0.5"])

    monkeypatch.setattr(redetect.Watcher, "run", run)
    asyncio.run(redetect.keep(environ, "n1", settings(environ)))
    assert len(asked) == 3
    assert all("/nodes/n1" in path for path in asked)
