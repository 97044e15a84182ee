"""The manifest on a real API server: accepted, enough for every process, and no right is idle.

    node1 10.99.7.1: calico-node, calico-bgp, calico-cni, calico-kube-controllers, each with the
    capabilities, mounts and account of its container; RBAC on, audit log on

1. The objects are accepted (server-side, strict).
2. Every probe answers; the CNI configuration is there; a pod gets an address.
3. No call was refused, none is without a rule, and every rule was used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from manifests import chart, rights, variants
from tests.k8s import binaries
from tests.manifests.world import ADDRESS, NODE, PORTS, World, eventually, world
from tests.support.netns import network_namespace

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "-"),
]
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"
STORES = ["etcd", "kubernetes"] if "MUSLIN_FULL_SIZE" in os.environ else ["etcd"]
SELDOM = {
    # A namespace that came after the watch was last heard.
    ("calico-node", "namespaces", "get"),
    # Addresses of a pod that is gone, after the grace period.
    ("calico-kube-controllers", "pods", "get"),
}
"""What takes minutes or a race to provoke; tests/apiserver and tests/controllers do."""
CALICO = """\
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: to-web}
spec:
  selector: has(app)
  egress: [{action: Allow, destination: {services: {name: web, namespace: default}}}]
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec:
  serviceClusterIPs: [{cidr: 10.96.0.0/16}]
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: router}
spec:
  peerIP: 10.99.7.254
  asNumber: 64600
  password: {secretKeyRef: {name: bgp-passwords, key: router}}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: balancers}
spec: {cidr: 10.97.0.0/24, blockSize: 28, allowedUses: [LoadBalancer]}
"""
STATUS = """\
apiVersion: projectcalico.org/v3
kind: CalicoNodeStatus
metadata: {name: asked}
spec: {node: node1, classes: [Agent], updatePeriodSeconds: 1}
"""
ENDPOINTS = """\
apiVersion: projectcalico.org/v3
kind: KubeControllersConfiguration
metadata: {name: default}
spec: {controllers: {node: {hostEndpoint: {autoCreate: WORD}}, loadBalancer: {}}}
"""
CLUSTER_POLICY = """{
"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
"metadata": {"name": "everyone"},
"spec": {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}},
  "egress": [{"action": "Accept", "to": [{"domainNames": ["example.com"]}]}]}
}"""
GONE = """\
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: gone}
spec:
  orchRefs: [{nodeName: gone, orchestrator: k8s}]
"""


@pytest.fixture(scope="module", params=STORES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Everything runs and is ready."""
    store: str = request.param
    values = {"datastore": store, "bgp": {"passwordSecrets": ["bgp-passwords"]}}
    file = variants.CRDS / "policy.networking.k8s.io_clusternetworkpolicies.yaml"
    before = variants.crds() if store == "kubernetes" else file.read_text()
    before += "---\n"
    folder = tmp_path_factory.mktemp("manifest")
    with world(folder, before + chart.render(values), store) as made:
        made.api.ensure("/api/v1/nodes", {"metadata": {"name": NODE}})
        said = {"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}}
        made.api.call("PATCH", f"/api/v1/nodes/{NODE}/status", said, content=MERGE)
        for name in (*PORTS, "calico-kube-controllers"):
            made.launch(name)
        for name in PORTS:
            eventually(lambda name=name: made.status(name) == 200, f"{name}\n{made.log(name)}")
        yield made


def service(cluster: World, name: str, kind: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}}
    cluster.api.ensure(SERVICES, body)


def ingress(cluster: World, name: str) -> Any:
    return cluster.api.call("GET", f"{SERVICES}/{name}")["status"]["loadBalancer"].get("ingress")


def condition(cluster: World) -> dict[str, str]:
    """NetworkUnavailable of the node."""
    node = cluster.api.call("GET", f"/api/v1/nodes/{NODE}")
    told = [one for one in node["status"].get("conditions", [])
            if one["type"] == "NetworkUnavailable"]  # fmt: skip
    return told[0] if told else {}


def attached(cluster: World, pod: str) -> dict[str, Any]:
    """The plugin's answer to ADD, as a runtime on the host calls it; then DEL."""
    with network_namespace("pod") as space:
        environ = {
            "CNI_COMMAND": "ADD", "CNI_CONTAINERID": f"{pod}{'0' * 40}", "CNI_IFNAME": "eth0",
            "CNI_NETNS": f"/proc/self/fd/{space.fd}", "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
        }  # fmt: skip
        answer = cluster.plugin(environ, space.fd)
        assert not cluster.plugin({**environ, "CNI_COMMAND": "DEL"}, space.fd)
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.promise("M-183")
def test_the_configuration_is_written_once_the_daemon_serves(cluster: World) -> None:
    file = cluster.folder / "host/etc/cni/net.d/10-calico.conflist"
    eventually(file.exists, "the CNI configuration")
    assert json.loads(file.read_text())["plugins"][0]["type"] == "calico"
    assert sorted(path.name for path in file.parent.iterdir()) == ["10-calico.conflist"]


@pytest.mark.promise("M-203")
def test_the_executables_are_installed_with_no_capability(cluster: World) -> None:
    done = cluster.run_in("install-cni", ["install-cni", "--binaries-only"])
    assert done.returncode == 0, done.stderr
    installed = {path.name for path in (cluster.folder / "host/opt/cni/bin").iterdir()}
    assert {"calico", "calico-ipam"} <= installed


@pytest.mark.promise("M-215")
@pytest.mark.promise("ADV-11")
def test_every_call_is_allowed_and_every_rule_is_used(cluster: World) -> None:
    done = cluster.run_in("install-cni", ["install-cni", "--binaries-only"])
    assert done.returncode == 0, done.stderr
    eventually(lambda: condition(cluster).get("reason") == "CalicoIsUp", "CalicoIsUp")
    cluster.api.ensure(PODS, {
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "one", "image": "none"}]},
    })  # fmt: skip
    answer = attached(cluster, "web")
    assert answer.get("ips"), f"{answer}\n{cluster.log('calico-cni')}"
    assert "code" in attached(cluster, "nobody")
    cluster.api.ensure("/api/v1/namespaces/kube-system/secrets", {
        "metadata": {"name": "bgp-passwords"}, "stringData": {"router": "secret"},
    })  # fmt: skip
    service(cluster, "web", "ClusterIP")
    cluster.api.ensure(
        "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies", json.loads(CLUSTER_POLICY)
    )
    cluster.calicoctl("apply", "-f", "-", input=CALICO)
    eventually(lambda: cluster.calicoctl("get", "kubecontrollersconfiguration"), "its settings")
    service(cluster, "balanced", "LoadBalancer")
    if cluster.etcd is not None:
        cluster.calicoctl("apply", "-f", "-", input=GONE)
    eventually(lambda: ingress(cluster, "balanced"), "the balancer's address")
    if cluster.etcd is None:
        cluster.calicoctl("apply", "-f", "-", input=STATUS)
        cluster.calicoctl("apply", "-f", "-", input=ENDPOINTS.replace("WORD", "Enabled"))
        eventually(lambda: "auto-hep" in cluster.calicoctl("get", "hep"), "host endpoints")
        cluster.calicoctl("apply", "-f", "-", input=ENDPOINTS.replace("WORD", "Disabled"))
        eventually(lambda: "auto-hep" not in cluster.calicoctl("get", "hep"), "none of them")
    # What went while nobody looked is asked for.
    cluster.end("calico-kube-controllers")
    cluster.api.delete(f"{SERVICES}/balanced")
    cluster.launch("calico-kube-controllers")
    done = cluster.run_in("calico-node", ["calico-node", "shutdown"])
    assert done.returncode == 0, done.stderr
    assert condition(cluster)["reason"] == "CalicoIsDown"

    granted = rights.rules(cluster.manifest)

    def complete() -> bool:
        return rights.coverage(granted, cluster.audit()).left_over() <= SELDOM

    try:
        eventually(complete, "every right is used")
    except AssertionError as error:
        raise AssertionError(rights.told(rights.coverage(granted, cluster.audit()))) from error
    found = rights.coverage(granted, cluster.audit())
    assert not found.refused, rights.told(found)
    assert not found.uncovered, rights.told(found)
    assert not found.unused()


@pytest.mark.promise("ADV-11")
def test_what_a_stolen_token_of_a_node_cannot_do(cluster: World) -> None:
    for verb, resource, namespace in (
        ("list", "secrets", "kube-system"),
        ("get", "secrets", "default"),
        ("create", "pods", "default"),
        ("create", "serviceaccounts/token", "kube-system"),
        ("patch", "daemonsets.apps", "kube-system"),
        ("delete", "nodes", ""),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
        ("update", "networkpolicies.networking.k8s.io", "default"),
        ("create", "pods/exec", "kube-system"),
    ):
        who = ["--as", "system:serviceaccount:kube-system:calico-node"]
        where = ["--namespace", namespace] if namespace else []
        done = cluster.kubectl("auth", "can-i", verb, resource, *who, *where)
        assert done.stdout.strip() == "no", f"{verb} {resource}: {done.stdout}{done.stderr}"


@pytest.mark.promise("M-185")
@pytest.mark.promise("M-186")
def test_blank_secrets_are_fine_without_tls(cluster: World) -> None:
    if cluster.etcd is None:
        pytest.skip("the Kubernetes datastore has no such Secret")
    certs = cluster.folder / "host/volumes/etcd-certs"
    assert [path.read_bytes() for path in certs.iterdir()] == [b"", b"", b""]
    assert all(cluster.status(name) == 200 for name in PORTS)
