"""`calicoctl connectivity test` on a real cluster: in pods of its own, from the node's image."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from calicoctl.connectivity import leftovers
from calicoctl.connectivity.documents import PREFIX
from tests.k8s import product
from tests.k8s.control_plane import ADMIN, ETCD
from tests.k8s.credentials import SERVICES
from tests.k8s.world import CALICOCTL, NODES, World
from tests.support.ended import ended
from tests.support.patience import wait_for

PATIENT = ("--settle", "240", "--timeout", "20", "--throughput", "0.5")
PORTS = ("pod", "other port")
HASTY = ("--settle", "5", "--timeout", "5", "--throughput", "0", "--no-policies")


def words(world: World, *more: str) -> list[str]:
    """The command line, from the control plane's network."""
    inside = [str(CALICOCTL), "connectivity", "test", *more]
    return world.cluster.wires.inside(world.cluster.wires.control, inside)


def environment(world: World) -> dict[str, str]:
    """An administrator's: kubectl, a kubeconfig, and the datastore."""
    at = world.cluster.credentials
    told = {
        "PATH": f"{world.case.release.folder()}:{os.environ['PATH']}",
        "HOME": str(at.folder),
        "KUBECONFIG": str(at.config(ADMIN)),
        "DATASTORE_TYPE": "kubernetes",
    }
    if world.case.mode == "kubernetes":
        return told
    pair = product.client(world.cluster, "administrator")
    return told | {
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": ETCD,
        "ETCD_KEY_FILE": str(pair.key),
        "ETCD_CERT_FILE": str(pair.cert),
        "ETCD_CA_CERT_FILE": str(at.authority.cert),
    }


def outcome_of(world: World, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        words(world, "-o", "json", *more), env=environment(world), capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def spaces(world: World) -> list[str]:
    """The namespaces of tests that are there, without those that go."""
    return [
        one["metadata"]["name"]
        for one in world.api.items("/api/v1/namespaces")
        if one["metadata"]["name"].startswith(PREFIX) and "deletionTimestamp" not in one["metadata"]
    ]


def test_all_is_right_and_nothing_stays(installed: World) -> None:
    code, told = outcome_of(installed, *PATIENT)
    assert (code, told["findings"]) == (0, []), told["findings"]
    asked = {(one["phase"], one["what"]) for one in told["probes"]}
    assert asked == {
        *(("open", what) for what in ("pod", "other port", "node", "service", "throughput")),
        *((phase, what) for phase in ("all denied", "one port allowed") for what in PORTS),
    }
    assert {one["fromNode"] for one in told["probes"]} == set(NODES)
    assert spaces(installed) == []


def test_a_service_that_one_node_does_not_serve_is_named(installed: World) -> None:
    node = installed.cluster.nodes["node1"]
    rule = ("PREROUTING", "-d", SERVICES, "-p", "tcp", "--dport", "8790", "-j", "DROP")
    node.run("iptables", "-t", "raw", "-I", *rule)
    try:
        code, told = outcome_of(installed, *HASTY)
    finally:
        node.run("iptables", "-t", "raw", "-D", *rule)
    assert code == 1
    assert [one["what"] for one in told["findings"]] == ["service"]
    assert "from node1" in told["findings"][0]["sentence"]


def test_what_a_killed_test_left_goes_with_the_next(installed: World) -> None:
    with ended(subprocess.Popen(
        words(installed, *PATIENT), env=environment(installed),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )) as process:  # fmt: skip
        wait_for(lambda: spaces(installed), "the test has a namespace", limit=300)
        process.kill()
        process.wait()
        (space,) = spaces(installed)
        pods = installed.pods(space)
        assert all(one["spec"]["activeDeadlineSeconds"] <= leftovers.LIVE_SECONDS for one in pods)
        done = subprocess.run(
            words(installed, "--cleanup-only"), env=environment(installed),
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, f"removed namespace {space}\n")
        wait_for(lambda: not spaces(installed), "the namespace is going", limit=300)
