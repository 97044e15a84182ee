"""What an operator may set on a node, proved by packets: here the iptables back end."""

from __future__ import annotations

import os

import pytest

from lab import cluster, pods
from lab.demo.wiring import interface
from tests.e2e.conftest import say

POOL = b"""\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, ipipMode: Never, vxlanMode: Never}
"""


@pytest.mark.parametrize(("backend", "other"), [("Legacy", "nft"), ("NFT", "legacy")])
def test_the_chosen_back_end_holds_the_rules_and_the_other_none(backend: str, other: str) -> None:
    name = f"be{os.getpid()}"
    setting = {"FELIX_IPTABLESBACKEND": backend}
    lab = cluster.up(name, nodes=1, topology="flat", environment=setting, say=say)
    try:
        node = lab.nodes[0]
        node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL)
        one, two = (pods.add(lab, pod, "node1") for pod in ("one", "two"))
        assert pods.answers(lab, one, two.address)
        chosen = node.run([f"iptables-{backend.lower()}-save"]).stdout
        dispatch = [line for line in chosen.splitlines() if "-A cali-from-wl-dispatch" in line]
        assert any(f"-i {interface(one)} " in line for line in dispatch)
        assert "cali" not in node.run([f"iptables-{other}-save"]).stdout
    finally:
        cluster.down(name)
