"""What hangs on the version: of the container runtime, and of the kubelet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cri.binaries import CONTAINERD2
from tests.k8s import pods, product
from tests.k8s.node_programs import BIN_DIR, NET_DIR
from tests.k8s.pods import PORT
from tests.k8s.world import CALICOCTL, NODES, NOWHERE, World, pair

CONFIGURATION = f"{product.SYSTEM}/configmaps/calico-config"
LIST = f"{NET_DIR}/10-calico.conflist"
LABEL = "kubernetes.io/os"


def configure(world: World, text: str) -> None:
    """Another configuration of CNI, for pods of ours that start from now on."""
    patch = json.dumps({"data": {"cni_network_config": text}})
    words = ("patch", "-n", "kube-system", "configmap", "calico-config", "--type=merge")
    world.api.kubectl(*words, "-p", patch)


def anew(world: World, node: str) -> None:
    """Our pod on a node is another one, and all of ours are ready."""
    before = world.node_pod(node)
    world.api.kubectl("delete", "pod", "-n", "kube-system", before)
    world.api.wait("our pod is another", lambda: world.node_pod(node) not in ("", before))
    product.wait_ready(world.cluster)


@contextmanager
def alone(world: World, node: str) -> Iterator[None]:
    """A node has our plugin and no other, and offers 1.1.0: those of Debian do not speak it."""
    text = world.api.get(CONFIGURATION)["data"]["cni_network_config"]
    tree = json.loads(text.replace("__CNI_MTU__", "0"))
    tree |= {
        "cniVersions": ["1.0.0", "1.1.0"],
        "plugins": [{**tree["plugins"][0], "mtu": "__CNI_MTU__"}],
    }
    only = json.dumps(tree, indent=2).replace('"__CNI_MTU__"', "__CNI_MTU__")
    configure(world, only)
    try:
        anew(world, node)
        yield
    finally:
        configure(world, text)
        world.api.kubectl("label", "node", node, f"{LABEL}=linux", "--overwrite")
        product.wait_ready(world.cluster)
        anew(world, node)


@pytest.mark.promise("F-3")
@pytest.mark.skipif(bool(CONTAINERD2.missing()), reason=CONTAINERD2.missing() or "it is there")
@pytest.mark.parametrize("installed", ["etcd"], indirect=True)
def test_containerd_2_asks_us_and_the_node_says_why_it_is_not_ready(
    installed: World, space: str
) -> None:
    """STATUS of a list of 1.1.0: our pod leaves node 2, whose pods go on, and comes back."""
    info = installed.api.get("/api/v1/nodes/node2")["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://")
    assert "containerd://1." not in info["containerRuntimeVersion"]
    node2 = installed.cluster.nodes["node2"]
    with alone(installed, "node2"):
        assert json.loads(node2.read(LIST))["cniVersions"] == ["1.0.0", "1.1.0"]
        installed.api.apply(*pair(space))
        addresses = installed.wait_pods(space, 2)
        installed.api.kubectl("label", "node", "node2", f"{LABEL}=elsewhere", "--overwrite")
        installed.api.wait(
            f"STATUS makes the node not ready: {installed.readiness('node2')}",
            lambda: "calico-cni" in installed.readiness("node2")[1],
        )
        status, why = installed.readiness("node2")
        assert status == "False"
        assert "the daemon calico-cni on this node does not answer" in why
        goal = f"{addresses['on-node2']}:{PORT}"
        installed.api.wait(
            "the pod of the other node answers",
            lambda: installed.ask(space, "on-node1", [goal], 15) == {goal: "on-node2"},
        )
    assert "cniVersions" not in json.loads(node2.read(LIST))
    installed.api.apply(pods.pod("later", {"app": "later"}, "node2", space))
    installed.wait_pods(space, 3)


@pytest.mark.promise("M-210")
@pytest.mark.parametrize("installed", ["etcd-1.20"], indirect=True)
def test_the_old_kubelet_takes_its_flags_and_containerd_looks_where_it_is_told(
    installed: World, space: str
) -> None:
    """Node 2's kubelet is told of a folder that is not there: pods start, checksystem warns."""
    version = installed.api.get("/version")["gitVersion"]
    assert version == f"v{installed.case.release.version}"
    for node, folder in zip(NODES, (BIN_DIR, NOWHERE), strict=True):
        info = installed.api.get(f"/api/v1/nodes/{node}")["status"]["nodeInfo"]
        assert info["kubeletVersion"] == version
        assert info["containerRuntimeVersion"].startswith("containerd://1.")
        log = (installed.cluster.logs / f"{node}-kubelet.log").read_text(errors="replace")
        for flag in ("network-plugin", "cni-conf-dir", "cni-bin-dir"):
            assert f"--{flag}=" in log, f"{node} was not told --{flag}"
        found = checked(installed, node)
        assert found["result"] == ("ok" if folder == BIN_DIR else "warning"), found
        if folder != BIN_DIR:
            assert f"kubelet runs {folder}, ours is {BIN_DIR}" in found["found"]
    installed.api.apply(*pair(space))
    addresses = installed.wait_pods(space, 2)
    installed.settle(space, {"on-node2": {f"{addresses['on-node1']}:{PORT}": True}})


def checked(world: World, node: str) -> dict[str, Any]:
    """What `calicoctl node checksystem` finds of the folders, run on a node."""
    words = ("node", "checksystem", "--offline", "--only", "cni-directories", "-o", "json")
    path = f"PATH={CALICOCTL.parent}:{os.environ['PATH']}"
    said = world.cluster.nodes[node].run("env", path, str(CALICOCTL), *words)
    (one,) = json.loads(said.stdout)["checks"]
    assert isinstance(one, dict)
    return one
