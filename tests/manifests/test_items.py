"""What people know of Calico's calico-etcd.yaml, item by item (M-179 to M-215), stands in ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cni.install import credentials, template
from cni.install.settings import VARIABLES
from node.settings.environment import settings
from tests.manifests.rendered import (
    FLAT,
    FOLDER,
    Tree,
    by_name,
    container,
    environment,
    mounts,
    pod,
    without_crds,
)

AGENTS = ("calico-node", "calico-bgp", "calico-cni")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Tree]:
    return by_name((FOLDER / "calico-etcd.yaml").read_text())


@pytest.fixture(scope="module")
def node(manifest: dict[str, Tree]) -> Tree:
    return manifest["DaemonSet/calico-node"]


@pytest.fixture(scope="module")
def controllers(manifest: dict[str, Tree]) -> Tree:
    return manifest["Deployment/calico-kube-controllers"]


@pytest.mark.promise("M-179")
@pytest.mark.promise("M-187")
def test_three_roles_under_the_known_names(node: Tree, controllers: Tree) -> None:
    assert node["apiVersion"] == controllers["apiVersion"] == "apps/v1"
    assert node["metadata"]["namespace"] == "kube-system"
    for workload, name in ((node, "calico-node"), (controllers, "calico-kube-controllers")):
        assert workload["metadata"]["labels"]["k8s-app"] == name
        assert workload["spec"]["selector"]["matchLabels"] == {"k8s-app": name}
        assert workload["spec"]["template"]["metadata"]["labels"]["k8s-app"] == name
    assert [one["name"] for one in pod(node)["containers"]] == list(AGENTS)
    assert "install-cni" in [one["name"] for one in pod(node)["initContainers"]]
    assert [one["name"] for one in pod(controllers)["containers"]] == ["calico-kube-controllers"]


@pytest.mark.parametrize("name", FLAT)
def test_the_token_is_for_one_user(name: str) -> None:
    """The kubelet makes it 0600 where all containers have one user that is named, 0644 else."""
    workload = without_crds((FOLDER / name).read_text())["DaemonSet/calico-node"]
    spec = pod(workload)
    users = {
        one.get("securityContext", {}).get("runAsUser", spec["securityContext"].get("runAsUser"))
        for one in (*spec["initContainers"], *spec["containers"])
    }
    assert users == {0}


@pytest.mark.promise("M-180")
@pytest.mark.promise("M-185")
def test_the_config_map(manifest: dict[str, Tree]) -> None:
    config = manifest["ConfigMap/calico-config"]
    assert config["metadata"]["namespace"] == "kube-system"
    data = config["data"]
    assert {"etcd_endpoints", "calico_backend", "cni_network_config"} <= data.keys()
    for name in ("ca", "cert", "key"):
        assert data[f"etcd_{name}"] == f"/calico-secrets/etcd-{name}"


@pytest.mark.promise("M-183")
@pytest.mark.promise("M-184")
def test_the_network_template_is_filled_without_a_credential(manifest: dict[str, Tree]) -> None:
    text = manifest["ConfigMap/calico-config"]["data"]["cni_network_config"]
    asked = template.names(text)
    known = {one.placeholder: one.default for one in VARIABLES if one.placeholder}
    assert asked
    assert set(asked) <= known.keys()
    assert not set(asked) & set(credentials.ASKING)
    filled = json.loads(template.render(text, known, "the ConfigMap"))
    assert filled["name"] == "k8s-pod-network"
    assert filled["plugins"][0]["type"] == "calico"
    assert filled["plugins"][0]["ipam"] == {"type": "calico-ipam"}
    assert [one["type"] for one in filled["plugins"]] == ["calico", "portmap", "bandwidth"]


@pytest.mark.promise("M-186")
def test_the_secret_is_there_and_blank(manifest: dict[str, Tree]) -> None:
    secret = manifest["Secret/calico-etcd-secrets"]
    assert secret["type"] == "Opaque"
    assert secret["data"] == {"etcd-key": "", "etcd-cert": "", "etcd-ca": ""}


@pytest.mark.promise("M-188")
@pytest.mark.promise("M-214")
def test_host_network_and_accounts(
    manifest: dict[str, Tree], node: Tree, controllers: Tree
) -> None:
    for workload, account in ((node, "calico-node"), (controllers, "calico-kube-controllers")):
        assert pod(workload)["hostNetwork"] is True
        assert pod(workload)["serviceAccountName"] == account
        assert manifest[f"ServiceAccount/{account}"]["metadata"]["namespace"] == "kube-system"


@pytest.mark.promise("M-40")
@pytest.mark.promise("M-41")
def test_scheduling(node: Tree, controllers: Tree) -> None:
    spec = pod(node)
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"
    assert pod(controllers)["priorityClassName"] == "system-cluster-critical"
    assert node["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    for workload in (node, controllers):
        assert "scheduler.alpha" not in str(workload)


@pytest.mark.promise("M-181")
@pytest.mark.promise("M-191")
@pytest.mark.promise("M-199")
def test_every_process_reads_etcd_from_the_config_map(node: Tree, controllers: Tree) -> None:
    everyone = [container(node, name) for name in AGENTS]
    for one in [*everyone, container(controllers, "calico-kube-controllers")]:
        found = environment(one)
        assert found["DATASTORE_TYPE"] == "etcdv3"
        assert found["ETCD_ENDPOINTS"] == "calico-config/etcd_endpoints"
        assert found["ETCD_CA_CERT_FILE"] == "calico-config/etcd_ca"
        assert found["ETCD_CERT_FILE"] == "calico-config/etcd_cert"
        assert found["ETCD_KEY_FILE"] == "calico-config/etcd_key"
        assert mounts(one)["etcd-certs"] == "/calico-secrets"


@pytest.mark.promise("M-182")
def test_the_node_understands_its_variables(manifest: dict[str, Tree], node: Tree) -> None:
    found = environment(container(node, "calico-node"))
    assert found["CALICO_NETWORKING_BACKEND"] == "calico-config/calico_backend"
    expected = {
        "CLUSTER_TYPE": "k8s,bgp",
        "CALICO_DISABLE_FILE_LOGGING": "true",
        "FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT",
        "FELIX_IPV6SUPPORT": "false",
        "FELIX_LOGSEVERITYSCREEN": "info",
        "FELIX_HEALTHENABLED": "true",
        "IP": "autodetect",
    }
    assert {name: found[name] for name in expected} == expected
    assert manifest["ConfigMap/calico-config"]["data"]["calico_backend"] == "bird"
    for backend in ("bird", "vxlan", "none"):
        chosen = settings({**found, "CALICO_NETWORKING_BACKEND": backend, "NODENAME": "one"})
        assert (chosen.backend, chosen.ipv4.mode, chosen.log_dir) == (backend, "autodetect", None)


@pytest.mark.promise("M-204")
def test_requests_are_of_the_known_order(node: Tree) -> None:
    asked = [container(node, name)["resources"]["requests"]["cpu"] for name in AGENTS]
    assert sum(int(one.removesuffix("m")) for one in asked) == 250


def test_probes(node: Tree) -> None:
    felix = container(node, "calico-node")
    live, ready = felix["livenessProbe"], felix["readinessProbe"]
    assert live["httpGet"] == {"path": "/liveness", "port": 9099, "host": "localhost"}
    assert ready["httpGet"] == {"path": "/readiness", "port": 9099, "host": "localhost"}
    assert (live["periodSeconds"], live["initialDelaySeconds"]) == (10, 10)
    assert live["failureThreshold"] == 6
    assert ready["periodSeconds"] == 10
    for name, port in (("calico-bgp", 9097), ("calico-cni", 9096)):
        one = container(node, name)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert one[probe]["httpGet"]["port"] == port


@pytest.mark.promise("M-207")
def test_mounts_have_the_known_names(node: Tree) -> None:
    felix = mounts(container(node, "calico-node"))
    assert felix["lib-modules"] == "/lib/modules"
    assert felix["var-run-calico"] == "/var/run/calico"
    assert felix["etcd-certs"] == "/calico-secrets"
    assert mounts(container(node, "install-cni")) == {"cni-bin-dir": "/host/opt/cni/bin"}
    assert mounts(container(node, "calico-cni"))["cni-net-dir"] == "/host/etc/cni/net.d"
    paths = {one["name"]: one.get("hostPath", {}).get("path") for one in pod(node)["volumes"]}
    assert paths["cni-bin-dir"] == "/opt/cni/bin"
    assert paths["cni-net-dir"] == "/etc/cni/net.d"
    (certs,) = [one for one in pod(node)["volumes"] if one["name"] == "etcd-certs"]
    assert certs["secret"] == {"secretName": "calico-etcd-secrets", "defaultMode": 0o400}


def test_one_controller_is_replaced_never_doubled(controllers: Tree) -> None:
    assert controllers["spec"]["replicas"] == 1
    assert controllers["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.promise("F-115")
@pytest.mark.promise("M-203")
@pytest.mark.parametrize("name", FLAT)
def test_nobody_is_privileged(name: str) -> None:
    found = without_crds((FOLDER / name).read_text())
    for workload in ("DaemonSet/calico-node", "Deployment/calico-kube-controllers"):
        spec = pod(found[workload])
        assert not spec.get("hostPID")
        assert not spec.get("hostIPC")
        for one in [*spec.get("initContainers", []), *spec["containers"]]:
            context = one["securityContext"]
            assert not context.get("privileged")
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
        assert "containerd.sock" not in str(spec)
    assert pod(found["Deployment/calico-kube-controllers"])["securityContext"]["runAsNonRoot"]


def test_what_stays_may_not_load_modules_and_only_cni_enters_namespaces(node: Tree) -> None:
    added: dict[str, Any] = {
        one["name"]: set(one["securityContext"]["capabilities"].get("add", []))
        for one in [*pod(node)["initContainers"], *pod(node)["containers"]]
    }
    assert [name for name, more in added.items() if "SYS_MODULE" in more] == ["load-modules"]
    assert [name for name, more in added.items() if "SYS_ADMIN" in more] == ["calico-cni"]
    assert "NET_ADMIN" not in added["calico-bgp"]
    assert added["install-cni"] == set()
