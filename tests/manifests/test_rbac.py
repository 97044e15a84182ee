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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifests import chart, rights, variants
from tests.k8s import binaries
from tests.manifests.rendered import container
from tests.manifests.world import ADDRESS, NODE, PORTS, World, world
from tests.support.audit import WRITES
from tests.support.netns import network_namespace
from tests.support.patience import wait_for

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "-"),
]
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MERGE = "application/merge-patch+json"
STORES = ["etcd", "kubernetes"] if "MUSLIN_FULL_SIZE" in os.environ else ["etcd"]
SELDOM = {
    # A namespace that came after the watch was last heard.
    "calico-node namespaces get",
    # Addresses of a pod that is gone, after the grace period.
    "calico-kube-controllers pods get",
}
"""What takes minutes or a race to provoke; tests/apiserver and tests/controllers do."""
SELDOM_KUBERNETES = SELDOM | {
    # Blocks that are given up, and claims that another node was faster with.
    *(f"{who} {what} {verb}" for who in ("calico-node", "calico-kube-controllers")
      for what in ("blockaffinities", "ipamblocks") for verb in ("get", "delete")),
    "calico-node ipamhandles list",
    "calico-node ipamhandles watch",
    "calico-node ipamblocks watch",
    "calico-kube-controllers ipamhandles list",
    # Each of the two finds what the other made first.
    *(f"{who} {what} {verb}" for who in ("calico-node", "calico-kube-controllers")
      for what in ("clusterinformations", "tiers") for verb in ("create", "update")),
    # Where somebody made it without felix's defaults.
    "calico-node felixconfigurations update",
    # One of a rule's kinds does not need all of its verbs.
    "calico-node caliconodestatuses/status get",
    "calico-kube-controllers hostendpoints update",
    "calico-kube-controllers ipamconfigs list",
    "calico-kube-controllers ipreservations get",
}  # fmt: skip
WORKS = "this process works now"
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: more}
spec: {cidr: 10.98.0.0/24, blockSize: 28}
"""
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
            wait_for(lambda name=name: made.is_ready(name), name, limit=180)  # type: ignore[misc]
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


def told_of_the_node(cluster: World) -> dict[str, int]:
    """The Events of the node: how often each reason was told."""
    listed = cluster.api.call("GET", "/api/v1/namespaces/default/events")["items"]
    of_node = [one for one in listed if one["involvedObject"]["kind"] == "Node"]
    return {one["reason"]: one["count"] for one in of_node}


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


def granted_to(cluster: World, name: str) -> int:
    """The capabilities that the manifest adds to a container, as the kernel's mask."""
    workload = cluster.node if name in PORTS else cluster.controllers
    added = container(workload, name)["securityContext"]["capabilities"].get("add", [])
    return sum(1 << CAPABILITIES[one] for one in added)


CAPABILITIES = {
    "CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "NET_BIND_SERVICE": 10,
    "NET_ADMIN": 12, "NET_RAW": 13, "SYS_MODULE": 16, "SYS_ADMIN": 21,
}  # fmt: skip
"""linux/capability.h."""


@pytest.mark.promise("M-203")
def test_each_process_has_the_rights_of_its_container(cluster: World) -> None:
    """The stand-in for a kubelet took away what the manifest does not give."""
    for name, process in cluster.running.items():
        told = Path(f"/proc/{process.pid}/status").read_text()
        lines = dict(line.split(":\t", 1) for line in told.splitlines() if ":\t" in line)
        assert int(lines["CapEff"], 16) == int(lines["CapBnd"], 16) == granted_to(cluster, name)
        assert lines["NoNewPrivs"] == "1"
        mounts = Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()
        read_only = {each.split()[4] for each in mounts if "ro" in each.split()[5].split(",")}
        assert {"/", "/usr", "/etc", "/proc/sys"} <= read_only


@pytest.mark.promise("M-183")
def test_the_configuration_is_written_once_the_daemon_serves(cluster: World) -> None:
    file = cluster.folder / "host/etc/cni/net.d/10-calico.conflist"
    wait_for(file.exists, "the CNI configuration")
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
    wait_for(lambda: condition(cluster).get("reason") == "CalicoIsUp", "CalicoIsUp")
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
    wait_for(lambda: cluster.calicoctl("get", "kubecontrollersconfiguration"), "its settings")
    service(cluster, "balanced", "LoadBalancer")
    if cluster.etcd is not None:
        cluster.calicoctl("apply", "-f", "-", input=GONE)
    wait_for(lambda: ingress(cluster, "balanced"), "the balancer's address")
    if cluster.etcd is None:
        # As an administrator does in the node's own pod.
        patch = ["calicoctl", "patch", "ippool", "balancers", "-p", '{"spec": {"disabled": true}}']
        done = cluster.run_in("calico-node", patch)
        assert done.returncode == 0, done.stderr
        done = cluster.run_in("calico-node", ["calicoctl", "apply", "-f", "-"], input=POOL)
        assert done.returncode == 0, done.stderr
        cluster.calicoctl("apply", "-f", "-", input=STATUS)
        cluster.calicoctl("apply", "-f", "-", input=ENDPOINTS.replace("WORD", "Enabled"))
        wait_for(lambda: "auto-hep" in cluster.calicoctl("get", "hep"), "host endpoints")
        cluster.calicoctl("apply", "-f", "-", input=ENDPOINTS.replace("WORD", "Disabled"))
        wait_for(lambda: "auto-hep" not in cluster.calicoctl("get", "hep"), "none of them")
    # What went while nobody looked is asked for.
    cluster.end("calico-kube-controllers")
    cluster.api.delete(f"{SERVICES}/balanced")
    cluster.launch("calico-kube-controllers")

    def told_again() -> bool:
        """What is said again is counted in the Event that stands; an Event may miss its limit."""
        done = cluster.run_in("calico-node", ["calico-node", "shutdown"])
        assert done.returncode == 0, done.stderr
        return told_of_the_node(cluster).get("CalicoIsDown", 0) >= 2

    wait_for(told_again, "the Event CalicoIsDown, counted")
    assert condition(cluster)["reason"] == "CalicoIsDown"
    wait_for(lambda: told_of_the_node(cluster).get("CalicoIsUp"), "the Event CalicoIsUp")

    granted = rights.rules(cluster.manifest)
    seldom = SELDOM if cluster.etcd is not None else SELDOM_KUBERNETES

    def complete() -> bool:
        left = rights.coverage(granted, cluster.audit()).left_over()
        return {" ".join(each) for each in left} <= seldom

    try:
        wait_for(complete, "every right is used")
    except AssertionError as error:
        raise AssertionError(rights.told(rights.coverage(granted, cluster.audit()))) from error
    found = rights.coverage(granted, cluster.audit())
    assert not found.refused, rights.told(found)
    assert not found.uncovered, rights.told(found)
    assert not found.unused()


def test_bgp_and_the_controllers_write_nothing_when_they_start_again(cluster: World) -> None:
    """Nothing changed meanwhile: no write but the lease's, by the API server's own log."""
    if "MUSLIN_FULL_SIZE" not in os.environ:
        pytest.skip("at full size")
    if cluster.etcd is None and "asked" in cluster.calicoctl("get", "caliconodestatus"):
        cluster.calicoctl("delete", "caliconodestatus", "asked")  # it is written each second
    again = ("calico-bgp", "calico-kube-controllers")
    for name in again:
        cluster.end(name)
    begun, before = len(cluster.audit()), cluster.log(again[1]).count(WORKS)
    for name in again:
        cluster.launch(name)
    wait_for(lambda: cluster.is_ready("calico-bgp"), "calico-bgp", limit=180)
    wait_for(lambda: cluster.log(again[1]).count(WORKS) > before, "the controllers work")
    check = ["calico-kube-controllers", "check-status", "-r"]
    wait_for(lambda: not cluster.run_in(again[1], check).returncode, "the controllers are ready")
    time.sleep(5)
    told = [(call, code) for _, call, code in rights.calls(cluster.audit()[begun:])]
    asked = {call.resource for call, _ in told}
    assert {"bgppeers", "pods", "nodes"} <= asked or cluster.etcd is not None, sorted(asked)
    refused = [call.told() for call, code in told if code == 403]
    assert not refused
    written = {
        f"{call.told()} {call.name}"
        for call, _ in told
        if call.verb in WRITES and call.resource not in ("leases", "events")
    }
    assert not written


@pytest.mark.promise("ADV-11")
def test_what_a_stolen_token_of_a_node_cannot_do(cluster: World) -> None:
    for verb, group, resource, namespace in (
        ("list", "", "secrets", "kube-system"),
        ("get", "", "secrets", "default"),
        ("create", "", "pods", "default"),
        ("create", "", "pods/exec", "kube-system"),
        ("create", "", "serviceaccounts/token", "kube-system"),
        ("patch", "apps", "daemonsets", "kube-system"),
        ("delete", "", "nodes", ""),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("update", "networking.k8s.io", "networkpolicies", "default"),
        ("delete", "crd.projectcalico.org", "globalnetworkpolicies", ""),
        ("delete", "crd.projectcalico.org", "ippools", ""),
    ):
        assert not may(cluster, verb, group, resource, namespace), f"{verb} {resource}"
    assert may(cluster, "patch", "", "nodes/status", "")


def may(cluster: World, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Whether the node's account may (`kubectl auth can-i --as`)."""
    kind, _, part = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": kind, "subresource": part}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:kube-system:calico-node",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {**asked, "namespace": namespace},
        },
    }
    answer = cluster.api.call("POST", REVIEWS, review)
    return bool(answer["status"]["allowed"])


@pytest.mark.promise("M-185")
@pytest.mark.promise("M-186")
def test_blank_secrets_are_fine_without_tls(cluster: World) -> None:
    if cluster.etcd is None:
        pytest.skip("the Kubernetes datastore has no such Secret")
    certs = cluster.folder / "host/volumes/etcd-certs"
    assert [path.read_bytes() for path in certs.iterdir()] == [b"", b"", b""]
    assert all(cluster.status(name) == 200 for name in PORTS)
