"""`calico-node cleanup`: a node as it was before, on both back ends; refused while it is used."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from lab import cluster, pods, proc
from lab.cluster import Lab
from lab.machine import Machine
from libcalico.process import paths
from tests.e2e.conftest import POOLS, say
from tests.support.patience import HANG

COMMAND = ("calico-node", "cleanup")
TABLES = (
    "ip -o route",
    "ip -6 -o route",
    "ip -br link",
    "iptables-nft-save",
    "ip6tables-nft-save",
    "iptables-legacy-save",
    "nft list tables",
    "ipset list -n",
    "ls -A /etc/cni/net.d /var/lib/calico",
)
VXLAN = POOLS.replace("vxlanMode: Never", "vxlanMode: Always", 1)


def state(node: Machine) -> dict[str, list[str]]:
    """What the node's kernel and directories hold, without counters, comments and empty tables."""
    found = {}
    for command in TABLES:
        lines = node.run(["sh", "-c", command], check=False).stdout.splitlines()
        kept = [
            line for line in lines if not line.startswith(("#", ":", "*", "COMMIT", "table ip"))
        ]
        # Of the links their names: tunl0 and the like come with a module.
        words = [line.split()[0] for line in kept if line] if "link" in command else kept
        found[command] = sorted(word for word in words if word != "tunl0@NONE")
    return found


@pytest.fixture(params=["iptables", "nftables"])
def used(request: pytest.FixtureRequest) -> Iterator[tuple[Lab, dict[str, list[str]]]]:
    """A node with a pod, and what it held before its agents came."""
    mode = {"FELIX_NFTABLESMODE": "Enabled" if request.param == "nftables" else "Disabled"}
    name = f"clean{os.getpid()}"
    lab = cluster.up(name, nodes=2, topology="flat", agents_too=False, environment=mode, say=say)
    try:
        before = state(lab.nodes[0])
        cluster.start_agents(lab, say)
        lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=VXLAN.encode())
        pods.add(lab, "web", "node1")
        yield lab, before
    finally:
        cluster.down(name)


def kill_agents(node: Machine) -> None:
    """As the end of a DaemonSet: nothing of them runs."""
    for pid in node.pids():
        title = proc.command_of(pid)
        if title.startswith("calico-") or "exabgp" in title:
            with contextlib.suppress(ProcessLookupError):  # the agents die with their supervisor
                os.kill(pid, signal.SIGKILL)
    proc.wait_until(
        lambda: not [p for p in node.pids() if proc.command_of(p).startswith("calico-")],
        "the agents are gone",
        timeout=HANG,
    )


def test_a_node_is_left_as_it_was(used: tuple[Lab, dict[str, list[str]]]) -> None:
    lab, before = used
    node = lab.nodes[0]
    refused = node.run(COMMAND, check=False)
    assert refused.returncode == 1
    assert "calico-felix runs; calico-cni runs; 1 pod(s) are attached: cali" in refused.stderr
    assert "--force" in refused.stderr
    kill_agents(node)
    attached = node.run(COMMAND, check=False)
    assert attached.returncode == 1
    assert "runs" not in attached.stderr
    assert state(node) != before
    done = node.run([*COMMAND, "--force"])
    assert "routes of protocol 109:" in done.stdout
    assert state(node) == before
    assert not node.path(paths.CNI_BIN / "calico").exists()
    assert node.path(paths.CNI_BIN / "bridge").is_symlink()
    again = node.run(COMMAND)
    assert "0 removed" in again.stdout
    assert state(node) == before
