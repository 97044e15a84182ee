"""checksystem holds the manifest's host paths against those of kubelet and containerd."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from node.checks import Facts, Verdict, run
from node.checks.facts import Kubernetes
from node.gather import kubernetes
from tests.manifests.rendered import FOLDER, by_name, pod

CONTAINERD = '[plugins."io.containerd.grpc.v1.cri".cni]\nconf_dir = "{}"\nbin_dir = "{}"\n'


@pytest.mark.promise("M-210")
@pytest.mark.parametrize(
    ("net", "binaries", "flag", "verdict"),
    [
        ("/etc/cni/net.d", "/opt/cni/bin", "/opt/cni/bin", Verdict.OK),
        ("/etc/cni/net.d", "/usr/lib/cni", "/opt/cni/bin", Verdict.FAILED),
        ("/etc/cni/net.d", "/opt/cni/bin", "/etc/cni/net.d", Verdict.FAILED),
        ("/etc/other", "/opt/cni/bin", "/opt/cni/bin", Verdict.FAILED),
    ],
)
def test_host_paths(net: str, binaries: str, flag: str, verdict: Verdict, tmp_path: Path) -> None:
    node = by_name((FOLDER / "calico-etcd.yaml").read_text())["DaemonSet/calico-node"]
    paths = {one["name"]: one.get("hostPath", {}).get("path") for one in pod(node)["volumes"]}
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_text(CONTAINERD.format(net, binaries))
    for pid, words in (
        ("1", ["kubelet", "--network-plugin=cni", f"--cni-bin-dir={flag}"]),
        ("2", ["containerd"]),
    ):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    found = kubernetes.read(Path(paths["cni-net-dir"]), Path(paths["cni-bin-dir"]), tmp_path)
    assert judged(found) is verdict


def judged(found: Kubernetes) -> Verdict:
    facts = replace(Facts(now=datetime.now(UTC)), kubernetes=found)
    (result,) = run(facts, ["cni-directories"])
    return result.verdict


@pytest.mark.promise("M-210")
@pytest.mark.parametrize("option", ["-c", "--config"])
@pytest.mark.parametrize(
    ("configuration", "verdict"),
    [
        (CONTAINERD.format("/etc/cni/net.d", "/opt/cni/bin"), Verdict.WARNING),
        (CONTAINERD.format("/etc/cni/net.d", "/usr/lib/cni"), Verdict.FAILED),
        ("version = 2\n", Verdict.WARNING),
    ],
)
def test_with_containerd_its_directories_count_and_no_flag_of_the_kubelet(
    option: str, configuration: str, verdict: Verdict, tmp_path: Path
) -> None:
    """The kubelet of 1.20 with `--container-runtime=remote` takes its flags, and nobody heeds."""
    kubelet = ["kubelet", "--container-runtime=remote", "--network-plugin=cni"]
    for pid, words in (
        ("1", [*kubelet, "--cni-conf-dir=/etc/cni/net.d", "--cni-bin-dir=/usr/local/cni"]),
        ("2", ["/usr/bin/containerd", option, "/srv/containerd.toml"]),
    ):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    (tmp_path / "proc/2/root/srv").mkdir(parents=True)
    (tmp_path / "proc/2/root/srv/containerd.toml").write_text(configuration)
    found = kubernetes.read(Path("/etc/cni/net.d"), Path("/opt/cni/bin"), tmp_path)
    assert judged(found) is verdict
