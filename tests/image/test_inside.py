"""The programs of an image run in it: in a chroot and a network namespace of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from manifests.image import build
from manifests.image.contents import CONTROLLERS, NODE
from manifests.image.wheels import ROOT
from tests.image.conftest import Unpacked

VARIABLES = ("PATH=/usr/local/bin:/usr/sbin:/usr/bin", "PYTHONSAFEPATH=1", "LC_ALL=C.UTF-8")

KUBECONFIG = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: jane}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: jane, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}}]
"""


def inside(
    root: Path, *command: str, user: str = "0:0", variables: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command in the image: nothing of this machine's files, processes or networks."""
    fenced = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    changed = ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i"]
    return subprocess.run(
        [*fenced, *changed, *VARIABLES, *variables, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("command", ["calico-node", "calicoctl", "cnitool", "install-cni"])
def test_commands_start(node: Unpacked, command: str) -> None:
    done = inside(node.root, command, "--help")
    assert (done.returncode, "usage" in done.stdout.lower()) == (0, True), done.stderr


@pytest.mark.parametrize("command", ["calico-felix", "calico-bgp", "calico-cni"])
def test_agents_start_and_say_which_setting_is_wrong(node: Unpacked, command: str) -> None:
    done = inside(
        node.root,
        command,
        variables=("DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=nowhere:1", "NODENAME=a"),
    )
    assert done.returncode == 1, done.stderr
    assert "nowhere:1" in done.stderr


def test_a_kubeconfig_that_needs_the_package_kubernetes_says_so(
    node: Unpacked,
) -> None:
    assert not list(node.root.glob("usr/local/lib/python3*/dist-packages/kubernetes"))
    (node.root / "tmp" / "kubeconfig").write_text(KUBECONFIG)
    done = inside(
        node.root,
        "calicoctl",
        "get",
        "nodes",
        variables=("DATASTORE_TYPE=kubernetes", "KUBECONFIG=/tmp/kubeconfig"),
    )
    assert done.returncode == 1
    assert "/tmp/kubeconfig: user 'jane': users[].user.exec: needs" in done.stderr
    assert "the Python package `kubernetes`" in done.stderr


def test_the_controllers_start_as_a_user_without_rights(node: Unpacked) -> None:
    user = CONTROLLERS.user
    done = inside(
        node.root,
        "calico-kube-controllers",
        user=user,
        variables=("DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=nowhere:1"),
    )
    assert (done.returncode, "nowhere:1" in done.stderr) == (1, True), done.stderr


def test_the_init_process_passes_the_status_on(node: Unpacked) -> None:
    assert inside(node.root, "/usr/bin/tini", "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize("variant", ["legacy", "nft"])
@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
def test_both_kinds_of_iptables_work(node: Unpacked, family: str, variant: str) -> None:
    program = f"{family}-{variant}"
    script = (
        f"printf '*filter\\n-A INPUT -m set --match-set s src -j DROP\\nCOMMIT\\n' |"
        f" {program}-restore --noflush && {program}-save -t filter"
    )
    kind = "inet6" if family == "ip6tables" else "inet"
    done = inside(node.root, "sh", "-c", f"ipset create s hash:net family {kind} && {script}")
    assert done.returncode == 0, done.stderr
    assert "-A INPUT -m set --match-set s src -j DROP" in done.stdout


def test_nft_and_ip_work(node: Unpacked) -> None:
    script = "nft add table ip t && nft list tables && ip link set lo up && ip -br link"
    done = inside(node.root, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "table ip t" in done.stdout
    assert "lo" in done.stdout


def test_the_installer_gives_a_node_its_plugins(node: Unpacked) -> None:
    """The C executable was built inside, and the plugins of others are copied along."""
    for path in ("host/opt/cni/bin", "host/etc/cni/net.d"):
        (node.root / path).mkdir(parents=True)
    done = inside(node.root, "/install-cni.sh", "--binaries-only", variables=("SLEEP=false",))
    assert done.returncode == 0, done.stderr
    put = node.root / "host/opt/cni/bin"
    assert {"calico", "calico-ipam", "portmap", "loopback"} <= {path.name for path in put.iterdir()}
    assert (put / "calico").read_bytes()[:4] == b"\x7fELF"
    said = inside(node.root, "/host/opt/cni/bin/portmap", variables=("CNI_COMMAND=VERSION",))
    assert "supportedVersions" in said.stdout, said.stderr
    said = inside(node.root, "/host/opt/cni/bin/calico", variables=("CNI_COMMAND=VERSION",))
    assert "supportedVersions" in said.stdout, said.stderr


def test_python_finds_its_byte_code(node: Unpacked) -> None:
    """A read-only root keeps none, so it lies in the image: for all of ours and of Debian's."""
    program = (
        "import sys, node.main, felix.main, bgp.serving, cni.main\n"
        "for m in list(sys.modules.values()):\n"
        "    f, c = getattr(m, '__file__', None), getattr(m, '__cached__', None)\n"
        "    if f and f.endswith('.py') and c:\n"
        "        import os\n"
        "        assert os.path.exists(c), c\n"
    )
    done = inside(node.root, "python3", "-I", "-c", program)
    assert done.returncode == 0, done.stderr


def test_the_image_of_the_controllers_holds_no_packet_filter(fetched: None) -> None:
    when = build.epoch()
    (base, _, top), _ = build.trees(CONTROLLERS, ROOT, when)
    assert not [path for path in base if "iptables" in path or path.startswith("usr/lib/cni")]
    assert "usr/local/bin/calico-kube-controllers" in top
    assert "usr/local/bin/calico-felix" not in top
    assert NODE.user == "0:0" != CONTROLLERS.user
