"""Pods by real CNI calls (Debian's ptp and host-local): life, responder, failure, deletion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab import pods, proc
from lab.cluster import Lab
from lab.errors import LabError
from lab.machine import FAST_PYTHON, PROBE
from libcalico.process import paths
from tests.support.patience import HANG


def names(lab: Lab, node: str) -> list[str]:
    """Pod namespaces that a node has."""
    return lab.machine(node).run(["ip", "netns"]).stdout.split()


@pytest.mark.promise("M-108")
def test_a_pods_life(bare: Lab) -> None:
    pod = pods.add(bare, "one", "node1", ports=["tcp:8080", "udp:5353"])
    other = pods.add(bare, "two", "node1", namespace="web")
    machine = bare.machine("node1")
    assert re.fullmatch(r"[0-9a-f]{64}", pod.container_id)
    assert pod.netns.removeprefix("/var/run/netns/") in names(bare, "node1")
    assert not Path(pod.netns).exists()
    assert pods.answers(bare, other, pod.address)
    for kind, port in ("tcp", "8080"), ("udp", "5353"):
        command = [*FAST_PYTHON, str(PROBE), kind, port, "60", pod.address]
        seen = json.loads(machine.run(command, netns=other.netns).stdout)
        assert seen == {pod.address: other.address}
    cache = machine.path(f"/var/lib/cni/results/reference-{pod.container_id}-eth0")
    assert json.loads(cache.read_text())["kind"] == "cniCacheV1"
    assert [found.title for found in pods.every(bare)] == ["default/one", "web/two"]
    for gone in (pod, other):
        pods.remove(bare, gone)
    assert names(bare, "node1") == []
    assert pods.every(bare) == []
    assert not cache.exists()
    proc.wait_until(lambda: machine.pids() == [], "nobody is left", timeout=HANG)


def test_a_pod_that_exists_is_not_added_twice(bare: Lab) -> None:
    pod = pods.add(bare, "one", "node1")
    try:
        with pytest.raises(LabError, match="default/one exists already"):
            pods.add(bare, "one", "node2")
    finally:
        pods.remove(bare, pod)


def test_a_failed_add_is_followed_by_one_del_and_leaves_nothing(bare: Lab) -> None:
    machine = bare.machine("node2")
    log = "/var/log/calls"
    plugin = machine.path(paths.CNI_BIN / "broken")
    plugin.write_text(
        f"#!/bin/sh\necho $CNI_COMMAND >>{log}\n[ $CNI_COMMAND = ADD ] || exit 0\n"
        'echo \'{"cniVersion":"0.4.0","code":11,"msg":"not now"}\'; exit 1\n'
    )
    plugin.chmod(0o755)
    first = machine.path(paths.CNI_NET / "00-broken.conflist")
    broken = {"cniVersion": "0.4.0", "name": "b", "plugins": [{"type": "broken"}]}
    first.write_text(json.dumps(broken))
    try:
        with pytest.raises(LabError, match=r"plugin broken failed at ADD \(code 11\): not now"):
            pods.add(bare, "bad", "node2")
    finally:
        first.unlink()
    assert machine.path(log).read_text().split() == ["ADD", "DEL"]
    assert names(bare, "node2") == []
    assert pods.every(bare) == []


def test_no_configuration_is_said_as_a_runtime_says_it(bare: Lab) -> None:
    machine = bare.machine("node3")
    file = machine.path(paths.CNI_NET / "10-reference.conflist")
    text = file.read_text()
    file.unlink()
    try:
        with pytest.raises(LabError, match="cni plugin not initialized"):
            pods.add(bare, "x", "node3")
    finally:
        file.write_text(text)
    assert names(bare, "node3") == []


@pytest.mark.parametrize("port", ["8080", "tcp:0", "sctp:1", "udp:x"])
def test_bad_ports_are_refused(bare: Lab, port: str) -> None:
    with pytest.raises(LabError, match="allowed are tcp:1 to tcp:65535"):
        pods.add(bare, "x", "node1", ports=[port])
    assert names(bare, "node1") == []


def test_unknown_nodes_and_pods_are_named(bare: Lab) -> None:
    with pytest.raises(LabError, match="no node 'node9'; there are node1, node2, node3"):
        pods.add(bare, "x", "node9")
    with pytest.raises(LabError, match="no pod web/x"):
        pods.find(bare, "x", "web")
