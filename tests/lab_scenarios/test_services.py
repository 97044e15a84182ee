"""Services that are announced: services/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lab.cluster import Lab
from lab.machine import FAST_PYTHON, PROBE, Machine
from tests.k8s import binaries
from tests.lab_scenarios.relay import relayed
from tests.lab_scenarios.scene import PORT, Scene, scene
from tests.support.apiserver import ADMIN, ApiServer

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "built"),
]
RANGE = "10.96.0.0/16"
PODS = "/api/v1/namespaces/default/pods"
LOCAL, OUTSIDE = "192.0.2.10", "198.51.100.10"
ONE, TWO = ("10.99.1.1", "rack1"), ("10.99.1.2", "rack1")
KUBECONFIG, CA = "/etc/calico/kubeconfig", "/etc/calico/kube-ca.pem"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def made(api: ApiServer) -> Iterator[Scene]:
    with ExitStack() as early:

        def prepared(lab: Lab) -> None:
            """The API and its credentials are there before anything asks for them."""
            early.enter_context(relayed(lab.nodes, api.port))
            for node in lab.nodes:
                write_kubeconfig(node, api)

        def known(name: str, node: str) -> str:
            """The API has the pod: calico-cni asks."""
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            pod = api.ensure(PODS, {"metadata": {"name": name}, "spec": spec})
            return str(pod["metadata"]["uid"])

        environment = {"KUBECONFIG": KUBECONFIG}
        with (
            scene("services", environment, prepared=prepared, known=known) as made,
            early.pop_all(),
        ):
            yield made


def write_kubeconfig(node: Machine, api: ApiServer) -> None:
    """The file that `KUBECONFIG` names, for an administrator."""
    node.path(CA).write_bytes(api.ca)
    file = node.path(KUBECONFIG)
    file.touch(mode=0o600)
    cluster = {"server": api.url, "certificate-authority": CA}
    text = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": ADMIN}}],
        "clusters": [{"name": "c", "cluster": cluster}],
    }
    file.write_text(json.dumps(text))


def service(api: ApiServer, name: str, address: str) -> None:
    """A load balancer's address, for endpoints of the node that it comes to."""
    path = "/api/v1/namespaces/default/services"
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": PORT}]}
    api.ensure(path, {"metadata": {"name": name}, "spec": spec})
    api.call(
        "PATCH",
        f"{path}/{name}/status",
        {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}},
        content="application/merge-patch+json",
    )


@pytest.mark.promise("F-46")
def test_1_the_range_is_known_from_all_nodes(made: Scene) -> None:
    made.way_becomes("router", RANGE, ONE, TWO)


@pytest.mark.promise("F-46", "F-47")
def test_2_a_local_address_is_known_from_its_node(made: Scene, api: ApiServer) -> None:
    service(api, "web", LOCAL)
    api.slice("web-1", "web", [made.on("node1").address], [PORT], node="node1")
    made.way_becomes("router", f"{LOCAL}/32", ONE)


@pytest.mark.promise("F-47")
def test_3_the_pod_sees_the_client(made: Scene) -> None:
    pod = made.on("node1")
    target = f"{pod.address}:{PORT}"
    rule = ["-d", LOCAL, "-p", "tcp", "--dport", str(PORT), "-j", "DNAT", "--to", target]
    made.machine("node1").run(["iptables", "-t", "nat", "-A", "PREROUTING", *rule])
    command = [*FAST_PYTHON, str(PROBE), "tcp", str(PORT), "5", LOCAL]
    client = "10.99.1.254"
    made.eventually(lambda: client in made.text("router", *command), "the pod answers a client")
    made.machine("node1").run(["iptables", "-t", "nat", "-D", "PREROUTING", *rule])


@pytest.mark.promise("F-47")
def test_4_the_way_follows_the_endpoint(made: Scene, api: ApiServer) -> None:
    api.slice("web-1", "web", [made.on("node2").address], [PORT], node="node2")
    made.way_becomes("router", f"{LOCAL}/32", TWO)
    api.slice("web-1", "web", [made.on("node2").address], [PORT], node="node2", ready=False)
    made.way_becomes("router", f"{LOCAL}/32")


@pytest.mark.promise("ADV-8")
def test_5_addresses_outside_the_ranges_are_not_announced(made: Scene, api: ApiServer) -> None:
    service(api, "outside", OUTSIDE)
    api.slice("outside-1", "outside", [made.on("node1").address], [PORT], node="node1")
    # Told after it, so it was looked at before this one is known.
    api.slice("web-1", "web", [made.on("node1").address], [PORT], node="node1")
    made.way_becomes("router", f"{LOCAL}/32", ONE)
    known = [route["dst"] for route in made.routes("router")]
    assert OUTSIDE not in known


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
