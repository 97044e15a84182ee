"""Secrets planted in every source of an archive; unpacked, it holds none of them (DIAG-1)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from calicoctl.main import run
from calicoctl.node import program
from libcalico.process import paths, status_file
from libcalico.process.progress import Progress
from tests.support.etcd import Etcd

CANARIES = {
    "etcd": "c4nary-etcd-password",
    "tls": "c4naryTlsKeyBody" + "Q" * 48,
    "bgp": "c4nary-bgp-password",
    "k8s": "c4nary-k8s-token",
    "env": "c4nary-environment",
    "log": "c4nary-only-in-a-log",
    "object": "c4nary-in-an-annotation",
}
PEM = f"-----BEGIN PRIVATE KEY-----\n{CANARIES['tls']}\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etcd: Etcd) -> Iterator[Path]:
    """A node's files, process and datastore, with a secret in each."""
    for name, folder in (
        ("CNI_NET", "cni"),
        ("CONFIG", "etc"),
        ("STATUS", "status"),
        ("LIB", "lib"),
    ):
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(paths, name, tmp_path / folder)
    monkeypatch.setattr(paths, "NODENAME", tmp_path / "lib" / "nodename")
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "etc" / "none.cfg")
    monkeypatch.setattr(program, "find", lambda: None)
    (tmp_path / "lib" / "nodename").write_text("node1")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "calico-bgp.log").write_text(
        "started\n"
        f"login as root with {CANARIES['etcd']} refused\n"
        f"http://root:{CANARIES['log']}@10.0.0.1:2379 gave up\n"
        f'md5-password "{base64.b64encode(CANARIES["bgp"].encode()).decode()}";\n'
        f"variable was {CANARIES['env']}\n{PEM}the last line\n"
    )
    (tmp_path / "cni" / "10-calico.conflist").write_text(
        json.dumps(
            {
                "name": "k8s-pod-network",
                "plugins": [
                    {"type": "calico", "policy": {"k8s_auth_token": CANARIES["k8s"]}, "mtu": 0}
                ],
            }
        )
    )
    (tmp_path / "cni" / "calico-kubeconfig").write_text(
        f"kind: Config\nusers:\n- name: calico\n  user:\n    token: {CANARIES['k8s']}\n"
        f"    client-key-data: {base64.b64encode(PEM.encode()).decode()}\n"
    )
    (tmp_path / "etc" / "extra.cfg").write_text(
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {}\nspec:\n"
        f"  etcdPassword: {CANARIES['etcd']}\n  etcdKey: |\n    "
        + PEM.replace("\n", "\n    ")
        + "\n"
    )
    (tmp_path / "etc" / "bgp.conf").write_text(f'  password "{CANARIES["bgp"]}";\nrouter id 1;\n')
    status_file.write("bgp", {"peers": [], "refused": [{"reason": CANARIES["etcd"]}]})
    for name, value in etcd.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CALICO_BGP_PASSWORD", CANARIES["bgp"])
    etcd.put(
        "/calico/resources/v3/projectcalico.org/bgppeers/tor",
        json.dumps(
            {
                "kind": "BGPPeer",
                "apiVersion": "projectcalico.org/v3",
                "metadata": {
                    "name": "tor",
                    "annotations": {"note": json.dumps({"password": CANARIES["object"]})},
                },
                "spec": {
                    "peerIP": "10.0.0.9",
                    "password": {"secretKeyRef": {"name": "bgp-secrets", "key": "tor"}},
                },
            }
        ),
    )
    agent = subprocess.Popen(
        ["calico-felix-of-a-test", "-c", "import time; time.sleep(3600)"],
        executable=sys.executable,
        env={"FELIX_ETCDPASSWORD": CANARIES["env"], "FELIX_LOGSEVERITYSCREEN": "Info"},
    )
    yield tmp_path
    agent.kill()
    agent.wait()


def unpacked(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {
            name.partition("/")[2]: tar.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in tar.getnames()
        }


@pytest.mark.promise("F-105")
def test_no_planted_secret_is_in_the_archive(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = machine / "out.tar.gz"
    assert run(["node", "diags", "--log-dir", str(machine / "log"), "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"Diags saved to {target}\n"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in machine.glob(".out*")] == []
    found = unpacked(target)
    for what, canary in CANARIES.items():
        for spelling in (canary, base64.b64encode(canary.encode()).decode().rstrip("=")):
            guilty = [name for name, text in found.items() if spelling in text or spelling in name]
            assert guilty == [], (what, guilty)
    # What helps is still there.
    log = found["logs/calico/calico-bgp.log"]
    assert log.startswith("started\n")
    assert log.endswith("the last line\n")
    assert '"mtu": 0' in found["cni/10-calico.conflist"]
    peer = json.loads(found["datastore/bgppeers.json"])["items"][0]
    assert peer["value"]["spec"]["peerIP"] == "10.0.0.9"
    assert peer["value"]["spec"]["password"]["secretKeyRef"]["name"] == "bgp-secrets"
    agent = next(text for name, text in found.items() if "calico-felix-of-a-test" in name)
    assert json.loads(agent)["FELIX_LOGSEVERITYSCREEN"] == "Info"
    for name in ("network/links", "network/routes4", "rules/iptables-nft", "status/bgp.json"):
        assert name in found
    index = json.loads(found["index.json"])
    assert index["node"] == "node1"
    assert {one["name"] for one in index["files"]} > {"network/links", "datastore/ippools.json"}


def test_without_a_datastore_the_rest_is_saved(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1")
    target = machine / "out.tar.gz"
    assert run(["node", "diags", "--log-dir", str(machine / "none"), "-o", str(target)]) == 0
    index = json.loads(unpacked(target)["index.json"])
    missing = {one["name"]: one["error"] for one in index["files"] if "error" in one}
    assert any(name.startswith("datastore/") for name in missing)
    assert missing["logs/calico"] == "there is no such folder"


def test_a_place_that_cannot_be_written(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "diags", "-o", str(machine / "no" / "out.tar.gz")]) == 1
    assert "cannot be written: No such file" in capsys.readouterr().err


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\n{text}\n")
    (folder / name).chmod(0o755)


KUBECTL = """
import json, sys
words = sys.argv[1:]
open(sys.argv[0] + ".log", "a").write(" ".join(words) + "\\n")
def pod(name, node):
    env = [{"name": "ETCD_PASSWORD", "value": "c4nary-etcd-password"}]
    return {"metadata": {"name": name, "namespace": "kube-system",
            "labels": {"k8s-app": "calico-node"}}, "spec": {"nodeName": node, "env": env}}
if words[0] == "logs":
    print("log of", words[3], "token=c4nary-k8s-token")
elif "pods" in words and "json" in words:
    print(json.dumps({"items": [pod(f"calico-node-{n}", f"n{n}") for n in range(8)]}))
elif "json" in words:
    print("{}")
"""


@pytest.fixture
def kubectl(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers as kubectl does; a real cluster is not to be had here."""
    (machine / "bin").mkdir()
    script(machine / "bin", "kubectl", KUBECTL)
    monkeypatch.setenv("PATH", f"{machine}/bin:{os.environ['PATH']}")
    return machine / "bin" / "kubectl.log"


@pytest.mark.promise("F-101")
def test_a_support_bundle_of_the_cluster(
    machine: Path, kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = machine / "cluster.tar.gz"
    flags = ["--max-logs", "2", "--since", "2h", "--focus-nodes", "n7,n5", "--max-parallelism", "3"]
    assert run(["cluster", "diags", *flags, "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"Diags saved to {target}\n"
    found = unpacked(target)
    for canary in CANARIES.values():
        assert [name for name, text in found.items() if canary in text] == []
    logs = sorted(name for name in found if name.startswith("logs/") and "previous" not in name)
    assert logs == [f"logs/kube-system/calico-node-{n}.log" for n in (5, 7)]
    assert "--since=2h" in kubectl.read_text()
    assert "secrets" not in kubectl.read_text()
    assert json.loads(found["datastore/bgppeers.json"])["count"] == 1


@pytest.mark.parametrize(
    ("words", "phases"),
    [
        (["node", "diags"], ["running programs", "reading files", "reading the datastore"]),
        (
            ["cluster", "diags"],
            ["asking kubectl", "reading the pods' logs", "reading the datastore"],
        ),
    ],
)
def test_what_takes_long_is_told(
    machine: Path,
    kubectl: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    phases: list[str],
) -> None:
    """Each phase with a count of programs, and as many of them done in the end."""
    told: list[Progress] = []

    class Kept(Progress):
        def begin(self, phase: str, total: int = 0) -> None:
            told.append(copy(self))
            super().begin(phase, total)

        def __exit__(self, *why: Any) -> None:
            told.append(copy(self))
            super().__exit__(*why)

    module = "calicoctl.node.diags" if words[0] == "node" else "calicoctl.diags.cluster"
    monkeypatch.setattr(f"{module}.Progress", Kept)
    assert run([*words, "--output", str(machine / "told.tar.gz")]) == 0
    assert [one.phase for one in told[1:]] == phases
    counted = [one for one in told if one.total]
    assert counted
    assert all(one.done == one.total for one in counted)


def test_without_kubectl_it_says_so(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("calicoctl.diags.programs.find", lambda name: None)
    monkeypatch.setattr("tempfile.tempdir", str(machine))
    assert run(["cluster", "diags", "--skip-temp-dir-cleanup"]) == 0
    told = capsys.readouterr()
    assert "kubectl is not installed: only the datastore's objects" in told.err
    folder, archive = (line.rpartition(" ")[2] for line in told.out.splitlines())
    assert (Path(folder) / "datastore" / "bgppeers.json").is_file()
    assert "datastore/bgppeers.json" in unpacked(Path(archive))


def test_wrong_flags_of_cluster_diags(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "diags", "--since", "yesterday"]) == 1
    assert "'yesterday' is no duration" in capsys.readouterr().err
    assert run(["cluster", "diags", "--max-parallelism", "0"]) == 1
