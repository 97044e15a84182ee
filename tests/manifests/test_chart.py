"""One text: flat files, bases and overlays are what the chart says; errors are named."""

from __future__ import annotations

import os
import subprocess

import pytest

from manifests import chart, variants
from manifests.__main__ import main
from tests.k8s import binaries
from tests.manifests.rendered import FOLDER, Tree, by_name, container, pod, without_crds

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
