"""One text: flat files, bases and overlays are what the chart says; errors are named."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from flows.record import INTERVAL
from flows.server import settings
from manifests import chart, variants
from manifests.__main__ import main
from tests.k8s import binaries
from tests.manifests.rendered import (
    FOLDER,
    Tree,
    by_name,
    container,
    environment,
    mounts,
    pod,
    without_crds,
)
from tests.support.certificates import Authority
from tests.support.etcd import Etcd
from tests.support.patience import wait_for
from tests.support.ports import free_ports

PAIRS = [(store, mode) for store in variants.VALUES for mode in variants.MODES]
FAST = [("etcd", "vxlan"), ("etcd", "policy-only")]
chosen = PAIRS if "MUSLIN_FULL_SIZE" in os.environ else FAST


def test_nothing_is_stale() -> None:
    assert main(["render", "--check"]) == 0


def kustomized(path: str) -> dict[str, Tree]:
    """What kubectl makes of an overlay."""
    command = [str(binaries.folder() / "kubectl"), "kustomize", str(FOLDER / path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return without_crds(done.stdout)


def sorted_env(found: dict[str, Tree]) -> dict[str, Tree]:
    """The order of variables has no meaning, and patches change it."""
    for one in found.values():
        if "template" in one.get("spec", {}):
            for each in pod(one)["containers"]:
                each["env"].sort(key=lambda variable: str(variable["name"]))
    return found


@pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "-")
@pytest.mark.parametrize(("store", "mode"), chosen)
def test_an_overlay_is_the_chart_with_the_values_of_its_mode(store: str, mode: str) -> None:
    values = {**variants.MODES[mode], **variants.VALUES[store]}
    expected = sorted_env(by_name(chart.render(values)))
    assert sorted_env(kustomized(f"overlays/{store}/{mode}")) == expected


@pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "-")
def test_the_reflectors_overlay_adds_its_objects() -> None:
    found = kustomized("overlays/kubernetes/route-reflector")
    assert found["BGPConfiguration/default"]["spec"] == {"nodeToNodeMeshEnabled": False}
    assert "BGPPeer/nodes-to-reflectors" in found


@pytest.mark.promise("M-182")
def test_without_bgp_there_is_no_speaker() -> None:
    for backend in ("vxlan", "none"):
        found = by_name(chart.render({"backend": backend}))
        names = [one["name"] for one in pod(found["DaemonSet/calico-node"])["containers"]]
        assert names == ["calico-node", "calico-cni"]


def test_the_cri_socket_is_mounted_only_where_it_is_asked_for() -> None:
    found = by_name(chart.render({"cni": {"criSocket": "/run/containerd/containerd.sock"}}))
    node = found["DaemonSet/calico-node"]
    holders = [one["name"] for one in pod(node)["containers"] if "cri-socket" in str(one)]
    assert holders == ["calico-cni"]
    variables = {one["name"]: one.get("value") for one in container(node, "calico-cni")["env"]}
    assert variables["CALICO_CNI_CRI_SOCKET"] == "/run/containerd/containerd.sock"


def test_nodes_read_through_proxies_only_where_it_is_asked_for() -> None:
    plain = by_name(chart.render({}))
    assert not [one for one in plain if one.endswith("/calico-etcd-proxy")]
    assert "READ_ENDPOINTS" not in str(plain)
    address = "https://10.96.0.70:23790"
    proxy = {"replicas": 3, "clusterIP": "10.96.0.70", "secret": "proxies"}
    found = by_name(chart.render({"etcd": {"readEndpoints": address, "proxy": proxy}}))
    assert found["ConfigMap/calico-config"]["data"]["etcd_read_endpoints"] == address
    workloads = [found["DaemonSet/calico-node"], found["Deployment/calico-kube-controllers"]]
    for one in (each for workload in workloads for each in pod(workload)["containers"]):
        assert environment(one)["ETCD_READ_ENDPOINTS"] == "calico-config/etcd_read_endpoints"
    assert found["Service/calico-etcd-proxy"]["spec"]["clusterIP"] == "10.96.0.70"
    deployment = found["Deployment/calico-etcd-proxy"]
    assert deployment["spec"]["replicas"] == 3
    assert found["Service/calico-etcd-proxy"]["spec"]["selector"].items() <= (
        deployment["spec"]["template"]["metadata"]["labels"].items()
    )
    assert "--cert=/certs/etcd-cert" in container(deployment, "etcd-proxy")["command"]
    without = by_name(chart.render({"etcd": {"proxy": {"replicas": 1}}}))
    assert "certs" not in str(without["Deployment/calico-etcd-proxy"])


def test_the_aggregator_is_there_only_where_it_is_asked_for() -> None:
    plain = by_name(chart.render({}))
    assert not [one for one in plain if one.endswith("/calico-goldmane")]
    assert "GOLDMANE" not in str(plain["DaemonSet/calico-node"])
    values = {"enabled": True, "clusterIP": "10.96.0.71", "address": "10.96.0.71:7443"}
    found = by_name(chart.render({"goldmane": values}))
    assert found["Service/calico-goldmane"]["spec"]["clusterIP"] == "10.96.0.71"
    deployment = found["Deployment/calico-goldmane"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Service/calico-goldmane"]["spec"]["selector"],
        found["NetworkPolicy/calico-goldmane"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    server = container(deployment, "calico-goldmane")
    settings.read(environment(server))
    node = found["DaemonSet/calico-node"]
    variables = environment(container(node, "calico-node"))
    assert variables["FELIX_FLOWLOGSGOLDMANESERVER"] == "10.96.0.71:7443"
    assert variables["FELIX_FLOWLOGSFLUSHINTERVAL"] == str(INTERVAL), "a bucket of the aggregator's"
    folder = mounts(container(node, "calico-node"))["goldmane-certs"]
    for name in ("CA", "CERT", "KEY"):
        assert variables[f"FELIX_TYPHA{name}FILE"].startswith(f"{folder}/")
    assert [one["name"] for one in pod(node)["containers"] if "goldmane" in str(one)] == [
        "calico-node"
    ]


@pytest.mark.parametrize("secure", [False, True])
def test_the_proxy_of_the_chart_serves(tmp_path: Path, secure: bool) -> None:
    """Its command line, with Debian's etcd and other ports and folders."""
    values = {"replicas": 1, "secret": "proxies" if secure else ""}
    command = container(
        by_name(chart.render({"etcd": {"proxy": values}}))["Deployment/calico-etcd-proxy"],
        "etcd-proxy",
    )["command"]
    flags = [] if not secure else _certified(tmp_path)
    server = Etcd(tmp_path / "etcd", flags, "https" if secure else "http")
    if secure:
        certs = tmp_path / "certs"
        server.ctl_flags = [f"--cacert={certs}/etcd-ca", f"--cert={certs}/etcd-cert"]
        server.ctl_flags += [f"--key={certs}/etcd-key"]
    health, port = free_ports(2)
    text = "\0".join(command).replace("$(ETCD_ENDPOINTS)", server.endpoint)
    text = text.replace("0.0.0.0:23790", f"127.0.0.1:{port}").replace("23791", str(health))
    text = text.replace("=/certs", f"={tmp_path}/certs").replace("=/data", f"={tmp_path}/data")
    server.start()
    environ = {"PATH": os.environ["PATH"], "ETCD_UNSUPPORTED_ARCH": ""}
    with (tmp_path / "log").open("wb") as log:
        proxy = subprocess.Popen(text.split("\0"), stdout=log, stderr=log, env=environ)
    try:
        wait_for(lambda: _healthy(health), lambda: (tmp_path / "log").read_text())
    finally:
        proxy.kill()
        proxy.wait()
        server.stop()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


def _certified(folder: Path) -> list[str]:
    """The files of the Secret, made; the flags of an etcd that asks for them."""
    authority = Authority(folder, "own")
    certs = folder / "certs"
    certs.mkdir()
    for side, pair in (
        ("etcd", authority.issue("to-etcd", named=False)),
        ("proxy", authority.issue("proxy")),
    ):
        (certs / f"{side}-ca").write_bytes(authority.cert.read_bytes())
        (certs / f"{side}-cert").write_bytes(pair.cert.read_bytes())
        (certs / f"{side}-key").write_bytes(pair.key.read_bytes())
    served = authority.issue("server")
    flags = [f"--cert-file={served.cert}", f"--key-file={served.key}"]
    return [*flags, f"--trusted-ca-file={authority.cert}", "--client-cert-auth=true"]


def test_canal_follows_flannel() -> None:
    found = without_crds((FOLDER / "canal.yaml").read_text())
    config = found["ConfigMap/calico-config"]["data"]
    assert config["calico_backend"] == "none"
    assert '"name": "cbr0"' in config["cni_network_config"]
    assert '"subnet": "usePodCidr"' in config["cni_network_config"]
    # Before flannel's own 10-flannel.conflist.
    assert '"10-canal.conflist"' in (FOLDER / "canal.yaml").read_text()


def test_canal_has_no_pools_and_no_condition() -> None:
    node = without_crds((FOLDER / "canal.yaml").read_text())["DaemonSet/calico-node"]
    variables = {one["name"]: one.get("value") for one in container(node, "calico-node")["env"]}
    assert variables["NO_DEFAULT_POOLS"] == "true"
    assert "CALICO_IPV4POOL_IPIP" not in variables


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {{ .Values.none }}", r"line 1: .Values.none: no such value"),
        ("a: {{ .Values.x | upper }}", "the function 'upper' is not known"),
        ("a: {{ include }}", "is not understood"),
        ("{{- range .Values.x }}", "'range' is not known"),
        ("{{- if .Values.x }}", "no `end`"),
        ("{{- end }}", "closes nothing"),
    ],
)
def test_what_the_renderer_does_not_know_is_an_error(text: str, why: str) -> None:
    with pytest.raises(chart.ChartError, match=why):
        chart.rendered(text, {"x": "y"})


def test_blocks() -> None:
    text = (
        '{{- if eq .Values.x "y" }}\na: {{ .Values.x }}\n{{- if not .Values.no }}\nb: 1\n'
        "{{- end }}\n{{- else }}\nc: 1\n{{- end }}\nd: {{ .Values.list | toJson }}"
    )
    values = {"x": "y", "no": False, "list": ["e"]}
    assert chart.rendered(text, values) == 'a: y\nb: 1\nd: ["e"]\n'
    assert chart.rendered(text, {**values, "x": ""}) == 'c: 1\nd: ["e"]\n'


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(chart.ChartError, match=r"pools: no such value; known: .*pool"):
        chart.render({"pools": {}})
