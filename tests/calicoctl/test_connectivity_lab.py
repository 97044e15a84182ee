"""`connectivity test --via` in a lab: all is right, and each planted fault is named.

Wide limits only catch a hang; a fault stays for as long as it is looked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from calicoctl.connectivity.via import POLICY, TIER
from lab import cluster, objects, pods, proc
from lab.cluster import Lab
from lab.machine import Machine
from lab.pods import Pod
from tests.e2e.conftest import say, stopped
from tests.support.ended import ended
from tests.support.patience import wait_for

PORT, SERVICE = 8790, "10.96.0.50"
PATIENT, HASTY = ("--settle", "120", "--timeout", "10"), ("--settle", "4", "--timeout", "3")
RETRIED = ("--settle", "120", "--timeout", "3")
"""What is denied answers in no time; what is late is asked again."""
PLAIN = ("--no-policies", "--throughput", "0")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three nodes with a pod each; the pods' names are those of the nodes."""
    name = f"conn{os.getpid()}"
    made = cluster.up(name, nodes=3, topology="racks", say=say)
    try:
        objects.apply(made)
        for node in made.nodes:
            pods.add(made, f"on-{node.name}", node.name)
        yield made
    finally:
        cluster.down(name)


def words(lab: Lab, *more: str, nodes: bool = True) -> list[str]:
    """The command line, on a machine that reaches etcd and enters pods by the lab."""
    ours = f"{sys.executable} -m lab"
    return [
        *("nsenter", f"--net=/run/netns/{lab.machine('node1').netns}", "--"),
        *(sys.executable, "-m", "calicoctl.main", "connectivity", "test"),
        *("--via", f"{ours} pod exec {{pod}} --namespace {{namespace}} --lab {lab.name} --"),
        *(("--via-node", f"{ours} exec {{node}} --lab {lab.name} --") if nodes else ()),
        *more,
    ]


def environment(lab: Lab) -> dict[str, str]:
    etcd = {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": lab.plan.etcd_endpoint}
    return {**os.environ, **etcd, "PYTHONPATH": os.getcwd()}


def outcome_of(lab: Lab, *more: str, nodes: bool = True) -> tuple[int, dict[str, Any]]:
    """Exit status and the object that the command prints."""
    done = subprocess.run(
        words(lab, "-o", "json", *more, nodes=nodes),
        env=environment(lab),
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def named(lab: Lab, *more: str, nodes: bool = True) -> dict[str, list[str]]:
    """The sentences of the findings by what they are."""
    code, told = outcome_of(lab, *HASTY, *more, nodes=nodes)
    assert code == 1
    found: dict[str, list[str]] = {}
    for one in told["findings"]:
        found.setdefault(one["what"], []).append(one["sentence"])
    return found


def pod_of(lab: Lab, node: str) -> Pod:
    return pods.find(lab, f"on-{node}")


@contextlib.contextmanager
def rule(machine: Machine, *rule: str, table: str = "raw") -> Iterator[None]:
    """A rule before all others, for a while."""
    machine.run(["iptables", "-t", table, "-I", "PREROUTING", *rule])
    try:
        yield
    finally:
        machine.run(["iptables", "-t", table, "-D", "PREROUTING", *rule])


def test_all_is_right_where_nothing_is_wrong(lab: Lab, tmp_path: Any) -> None:
    report = tmp_path / "j.xml"
    code, told = outcome_of(lab, *RETRIED, "--throughput", "0", "--junit", str(report))
    assert (code, told["ok"], told["findings"]) == (0, True, [])
    reached = {("open", "pod"), ("open", "other port"), ("open", "node")}
    assert {(one["phase"], one["what"]) for one in told["probes"]} == reached | {
        ("all denied", "pod"), ("all denied", "other port"),
        ("one port allowed", "pod"), ("one port allowed", "other port"),
    }  # fmt: skip
    assert 'failures="0"' in report.read_text()
    assert nothing_left(lab)


def test_throughput_is_measured_between_all_nodes(lab: Lab) -> None:
    """Once, with no second try: so each probe has its time."""
    code, told = outcome_of(lab, *PATIENT, "--no-policies", "--throughput", "0.2")
    assert (code, told["ok"], told["findings"]) == (0, True, [])
    found = [one for one in told["probes"] if one["what"] == "throughput"]
    assert found
    assert {one["phase"] for one in found} == {"open"}
    assert all(one["bitsPerSecond"] for one in found)
    assert nothing_left(lab)


def test_a_dropped_route_is_named(lab: Lab) -> None:
    machine = lab.machine("node1")
    away = ["to", f"{pod_of(lab, 'node3').address}/32", "priority", "1", "blackhole"]
    machine.run(["ip", "rule", "add", *away])
    try:
        found = named(lab, *PLAIN)
    finally:
        machine.run(["ip", "rule", "del", *away])
    (sentence,) = found["route"]
    assert "pods of node node1 do not reach pods of node node3, nor the other way" in sentence


def test_a_denied_port_is_named(lab: Lab) -> None:
    goal = ("-d", pod_of(lab, "node2").address, "-p", "tcp", "--dport", str(PORT + 1))
    with rule(lab.machine("node2"), *goal, "-j", "DROP"):
        found = named(lab, *PLAIN)
    (sentence,) = found["port"]
    assert sentence.startswith(f"port {PORT + 1} of pods on node node2 is shut for node1, node3")
    assert "another port of the same pods answers" in sentence
    assert set(found) == {"port", "node to pod"}


def test_large_packets_that_are_lost_are_named(lab: Lab) -> None:
    goal = ("-d", pod_of(lab, "node3").address, "-m", "length", "--length", "1000:65535")
    with rule(lab.machine("node3"), *goal, "-j", "DROP"):
        found = named(lab, *PLAIN)
    assert any("large packets from node1 to node3 are lost" in one for one in found["MTU"])
    assert "route" not in found


def test_a_service_that_one_node_does_not_serve_is_named(lab: Lab) -> None:
    goal = ("-d", SERVICE, "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination")
    # Each to the other's pod: a pod that is its own backend needs more than this.
    one, other = (f"{pod_of(lab, node).address}:{PORT}" for node in ("node1", "node3"))
    with (
        rule(lab.machine("node1"), *goal, other, table="nat"),
        rule(lab.machine("node3"), *goal, one, table="nat"),
    ):
        found = named(lab, *PLAIN, "--service", f"{SERVICE}:80", nodes=False)
    (sentence,) = found["service"]
    assert sentence.endswith("from node2: kube-proxy there does not serve it")
    assert set(found) == {"service"}


def test_a_dead_node_is_named_and_nothing_that_it_explains(lab: Lab) -> None:
    lab.link("node3", up=False)
    try:
        found = named(lab, *PLAIN)
    finally:
        lab.link("node3", up=True)
    (sentence,) = found["dead node"]
    assert "node3" in sentence
    assert set(found) == {"dead node"}


def test_a_felix_that_does_not_enforce_is_named(lab: Lab) -> None:
    wait_for(lambda: outcome_of(lab, *PATIENT, *PLAIN)[0] == 0, "the lab is whole again")
    with stopped(lab.machine("node2"), "calico-felix"):
        found = named(lab, "--throughput", "0")
    (sentence,) = found["policy not enforced"]
    assert "pods on node2 answer" in sentence


def nothing_left(lab: Lab) -> bool:
    """No object of ours in etcd, and no server in a pod."""
    machine = lab.machine("node1")
    listed = machine.run(["calicoctl", "get", "tiers"]).stdout
    running = [
        pid
        for node in lab.nodes
        for pid in node.pids()
        if " serve default/" in proc.command_of(pid)
    ]
    return TIER not in listed and not running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_is_interrupted_leaves_nothing_and_killed_is_cleaned_up(
    lab: Lab, number: signal.Signals
) -> None:
    machine = lab.machine("node1")
    # What is to be denied passes on one node, so it is asked again and the policies stay.
    with (
        stopped(lab.machine("node2"), "calico-felix"),
        ended(subprocess.Popen(
            words(lab, *PATIENT, "--throughput", "0"),
            env=environment(lab), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )) as process,
    ):  # fmt: skip
        wait_for(
            lambda: POLICY in machine.run(["calicoctl", "get", "gnp", "-o", "wide"]).stdout,
            "policies of the test are in force",
        )
        process.send_signal(number)
        assert process.wait(timeout=300) != 0
    if number is signal.SIGKILL:
        assert TIER in machine.run(["calicoctl", "get", "tiers"]).stdout
        code, _ = cleanup(lab)
        assert code == 0
    wait_for(lambda: nothing_left(lab), "nothing is left")


def cleanup(lab: Lab) -> tuple[int, str]:
    done = subprocess.run(
        words(lab, "--cleanup-only"), env=environment(lab), capture_output=True, text=True
    )
    return done.returncode, done.stdout
