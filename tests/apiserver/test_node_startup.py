"""Node start-up beside a real Kubernetes API: InternalIP, kubeadm, the condition, the CNI token."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libcalico import apiconfig
from libcalico.kubernetes.access import Kubeconfig
from libcalico.kubernetes.client import Client
from libcalico.process import status_file
from node import cni_token, readiness
from node.identity import autodetect, interfaces, kubernetes
from node.identity.kubernetes import ClusterFacts
from node.settings.environment import settings
from node.start import startup
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import HANG, patient, wait_for

NODES = "/api/v1/nodes"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
NAME = "start-up-1"
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
]
"""What docs/node.md says that a node needs."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers late is not what this file is about."""
    monkeypatch.setattr(kubernetes, "LIMIT", HANG)


@pytest.fixture
def pod(api: ApiServer, tmp_path: Path) -> dict[str, str]:
    """The environment of calico-node in a pod; its account is in `tmp_path`/account."""
    api.namespace("kube-system")
    account = tmp_path / "account"
    api.mount_account(account, api.account("calico-node", RULES, "kube-system"))
    (account / "namespace").write_text("kube-system")
    return {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.port),
        "ETCD_ENDPOINTS": "http://127.0.0.1:1",
    }


@pytest.fixture
def node(api: ApiServer) -> Iterator[list[str]]:
    """The node of Kubernetes, whose InternalIPs are this machine's own addresses."""
    found = interfaces.read()
    own = [str(one.ip) for version in (4, 6) for one in autodetect.local(found, version)]
    if not any(":" not in address for address in own):
        pytest.skip("this machine has no IPv4 address but loopback's")
    api.ensure(NODES, {"metadata": {"name": NAME}})
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "up"}]
    listed = [{"type": "Hostname", "address": NAME}]
    listed += [{"type": "InternalIP", "address": address} for address in own]
    api.call(
        "PATCH",
        f"{NODES}/{NAME}/status",
        {"status": {"addresses": listed, "conditions": conditions}},
        content="application/merge-patch+json",
    )
    yield own
    api.delete(f"{NODES}/{NAME}")
    for mark in kubernetes.MARKS:
        api.delete(f"{MAPS}/{mark}")


def read(environ: dict[str, str], account: Path, name: str = NAME) -> ClusterFacts:
    config = apiconfig.from_environment(environ)
    return asyncio.run(kubernetes.read(environ, config, name, account))


def conditions(api: ApiServer) -> dict[str, Any]:
    told = api.call("GET", f"{NODES}/{NAME}")["status"]["conditions"]
    return {one["type"]: one for one in told}


def test_what_kubernetes_says_of_this_node(
    api: ApiServer, pod: dict[str, str], node: list[str], tmp_path: Path
) -> None:
    account = tmp_path / "account"
    assert read(pod, account) == ClusterFacts(kubernetes.addresses(node))
    told = "networking: {podSubnet: 10.244.0.0/16}"
    api.ensure(
        MAPS, {"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": told}}
    )
    api.ensure(MAPS, {"metadata": {"name": "full-cluster-state"}, "data": {}})
    found = read(pod, account)
    assert found.pod_networks == (ip_network("10.244.0.0/16"),)
    assert (found.kinds, found.problem) == (("kubeadm", "rancher"), "")
    assert "404" in read(pod, account, "nobody").problem


def test_the_condition_of_the_node(
    api: ApiServer, pod: dict[str, str], node: list[str], tmp_path: Path
) -> None:
    """Nothing before the agents are ready, then CalicoIsUp; CalicoIsDown by a shutdown."""
    account, status = tmp_path / "account", tmp_path / "status"
    chosen = settings(pod | {"CALICO_SHUTDOWN_TIMESTAMP_FILE": str(tmp_path / "down")})
    pids = {"calico-felix": os.getpid()}

    async def come_up() -> None:
        telling = asyncio.create_task(
            readiness.clear_when_ready(pod, NAME, chosen, lambda: pids, account, status)
        )
        await asyncio.sleep(2 * readiness.POLL)
        assert "NetworkUnavailable" not in await asyncio.to_thread(conditions, api)
        status_file.write("felix", {"in_sync": True, "ready": True}, status)
        await asyncio.wait_for(telling, patient(30))

    asyncio.run(come_up())
    found = conditions(api)
    said = found["NetworkUnavailable"]
    assert (said["status"], said["reason"]) == ("False", "CalicoIsUp")
    assert found["Ready"]["reason"] == "KubeletReady", "the others stay"
    asyncio.run(readiness.shut_down(pod, NAME, chosen, account))
    said = conditions(api)["NetworkUnavailable"]
    assert (said["status"], said["reason"]) == ("True", "CalicoIsDown")
    assert (tmp_path / "down").exists()


@pytest.mark.promise("F-19")
@pytest.mark.promise("PAIN-31")
def test_the_cni_plugins_kubeconfig(
    api: ApiServer, pod: dict[str, str], node: list[str], tmp_path: Path
) -> None:
    """A token of the account that is named, in a file for root alone; it opens the API.

    Only where the installer was asked for one: by default no credential lies on disk.
    """
    account, folder = tmp_path / "account", tmp_path / "net.d"
    folder.mkdir()
    may = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    api.account("plugin", may, "kube-system")
    environ = pod | {"CNI_NET_DIR": str(folder), "CALICO_CNI_SERVICE_ACCOUNT": "plugin"}
    off = settings(environ | {"CALICO_MANAGE_CNI": "false"})
    asyncio.run(cni_token.keep(environ, off, account))
    assert not list(folder.iterdir())
    assert cni_token.needed(environ, settings(environ), account)

    async def keep(until: Callable[[], bool]) -> None:
        keeping = asyncio.create_task(cni_token.keep(environ, settings(environ), account))
        for _ in range(2400):
            await asyncio.wait({keeping}, timeout=0.05)
            if until():
                keeping.cancel()
                return
        raise AssertionError("it did not happen")

    looks = iter(range(5))
    asyncio.run(keep(lambda: next(looks, None) is None))
    assert not list(folder.iterdir()), "nobody asked for a credential"
    (folder / "calico-kubeconfig").write_text("the installer's, whose token ends soon")
    asyncio.run(keep(lambda: "ends soon" not in (folder / "calico-kubeconfig").read_text()))
    (file,) = folder.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("calico-kubeconfig", 0o600)

    async def ask() -> bytes:
        client = Client(Kubeconfig(str(file)))
        try:
            return await client.request("GET", f"{NODES}/{NAME}")
        finally:
            await client.close()

    assert json.loads(asyncio.run(ask()))["metadata"]["name"] == NAME


@pytest.mark.promise("PAIN-10")
def test_the_internal_ip_is_registered_and_the_cluster_is_known(
    api: ApiServer,
    pod: dict[str, str],
    node: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The whole start-up, with the node's name in Kubernetes given by its reference."""
    caplog.set_level("INFO")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cni_token.kubeconfig(api.access(), api.access().token))
    told = "networking: {podSubnet: 10.244.0.0/16}"
    api.ensure(
        MAPS, {"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": told}}
    )
    etcd = Etcd(tmp_path / "etcd").start()
    environ = {
        **etcd.environment(),
        "KUBECONFIG": str(kubeconfig),
        "NODENAME": "n1",
        "CALICO_K8S_NODE_REF": NAME,
        "CALICO_NODENAME_FILE": str(tmp_path / "nodename"),
        "CLUSTER_TYPE": "k8s,bgp",
        "CALICO_POOL_ALLOW_OVERLAP": "true",
    }
    try:
        assert asyncio.run(startup.start_up(environ))[0] == "n1"
        root = "/calico/resources/v3/projectcalico.org"
        stored = {
            name: json.loads(etcd.get(f"{root}/{name}") or b"{}")["spec"]
            for name in ("nodes/n1", "ippools/default-ipv4-ippool", "clusterinformations/default")
        }
    finally:
        etcd.stop()
    first = next(one for one in node if ":" not in one)
    assert stored["nodes/n1"]["bgp"]["ipv4Address"].partition("/")[0] == first
    assert stored["nodes/n1"]["orchRefs"] == [{"nodeName": NAME, "orchestrator": "k8s"}]
    assert "the InternalIP of the Kubernetes node, on an interface here" in caplog.text

    def found() -> str:
        checked = subprocess.run(
            [sys.executable, "-m", "node.main", "checksystem", "-o", "json",
             "--only", "node-address"],
            env={**os.environ, **environ, "IP": "autodetect"},
            capture_output=True, text=True, timeout=HANG, check=True,
        )  # fmt: skip
        (check,) = json.loads(checked.stdout)["checks"]
        return str(check["found"])

    # It gives the API two seconds.
    wait_for(lambda: "the InternalIP of the Kubernetes node" in found(), found)
    assert stored["ippools/default-ipv4-ippool"]["cidr"] == "10.244.0.0/16"
    assert stored["clusterinformations/default"]["clusterType"] == "k8s,bgp,kubeadm"
