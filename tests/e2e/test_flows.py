"""Flows from end to end: packets, felix of two nodes, the aggregator as a process, calicoctl.

client (node1) ---> server (node2), which lets only `role=client` in; `stranger` is on node1, too.
calico-goldmane runs on etcd's machine; the FelixConfiguration names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from flows.record import Action, Flow, Reporter
from flows.written import read_line
from lab import cluster, pods, proc
from lab.cluster import Lab
from lab.pods import Pod
from tests.e2e.conftest import say
from tests.e2e.test_first_packet import reaches
from tests.support.patience import HANG

PLACE = "10.99.0.1:7443"
STRANGER = ("--from", "default/stranger")
"""The client, too, is denied where the server's node hears of its labels a moment late."""
OBJECTS = f"""\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: pods}}
spec: {{cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {{name: default}}
spec: {{flowLogsGoldmaneServer: "{PLACE}", flowLogsFlushInterval: 1s}}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {{name: door, namespace: default}}
spec:
  selector: role == 'server'
  ingress:
    - {{action: Allow, protocol: TCP, source: {{selector: role == 'client'}}}}
    - {{action: Deny}}
"""


@pytest.fixture(scope="module")
def watched() -> Iterator[Lab]:
    """Two nodes whose flows an aggregator gets."""
    name = f"seen{os.getpid()}"
    lab = cluster.up(name, nodes=2, say=say)
    try:
        serving = lab.etcd.start(
            ["calico-goldmane"],
            environment={"GOLDMANE_WITHOUT_TLS": "true"},
            output="/var/log/goldmane.log",
        )
        lab.etcd.wait_http(8080, "/readiness", timeout=HANG, server=serving)
        lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=OBJECTS.encode())
        yield lab
    finally:
        cluster.down(name)


@pytest.fixture(scope="module")
def ends(watched: Lab) -> dict[str, Pod]:
    """Client, stranger and server, after each has tried to reach the server."""
    made = {
        "server": pods.add(watched, "server", "node2", labels={"role": "server"},
                           ports=["tcp:8080"]),
        "client": pods.add(watched, "client", "node1", labels={"role": "client"}),
        "stranger": pods.add(watched, "stranger", "node1"),
    }  # fmt: skip
    # Once the routes are there the one gets through, and the other never.
    proc.wait_until(
        lambda: reaches(watched, made["client"], made["server"], 1), "the door", timeout=HANG
    )
    assert not reaches(watched, made["stranger"], made["server"], 1)
    return made


def listed(lab: Lab, *words: str) -> list[Flow]:
    """What `calicoctl flows` finds on the second node; felix's configuration names the place."""
    said = lab.nodes[1].run(["calicoctl", "flows", "-o", "json", *words]).stdout
    return [read_line(line) for line in said.splitlines()]


def told(flows: list[Flow]) -> set[tuple[str, str, Action, Reporter]]:
    """Of each flow its ends, its verdict and who saw it."""
    return {
        (f.key.source.name, f.key.destination.name, f.key.action, f.key.reporter) for f in flows
    }


def arrived(lab: Lab) -> None:
    """Wait until the aggregator has all that the fixture's connections became."""
    wanted = {
        ("client", "server", Action.ALLOW, Reporter.SOURCE),
        ("client", "server", Action.ALLOW, Reporter.DESTINATION),
        ("stranger", "server", Action.DENY, Reporter.DESTINATION),
    }
    proc.wait_until(
        lambda: told(listed(lab, "--to", "default/server")) >= wanted, "flows", timeout=HANG
    )


@pytest.mark.promise("F-97")
def test_what_was_sent_is_listed_with_the_rule_that_decided(
    watched: Lab, ends: dict[str, Pod]
) -> None:
    arrived(watched)
    denying = ["--verdict", "deny", *STRANGER]
    (denied,) = listed(watched, *denying, "--reporter", "dst")
    hit = denied.key.trace.enforced[-1]
    assert (hit.namespace, hit.name, hit.action, hit.rule_index) == (
        "default", "door", Action.DENY, 1,
    )  # fmt: skip
    assert denied.counts.packets_in > 0
    table = watched.nodes[0].run(["calicoctl", "flows", *denying]).stdout
    (row,) = table.splitlines()[1:]
    assert row.split()[1:5] == ["Deny", "default/stranger", "default/server", "8080/tcp"]
    assert row.endswith("CalicoNetworkPolicy default/door, ingress[1]")


def test_nodes_answer_for_themselves(watched: Lab, ends: dict[str, Pod]) -> None:
    def both() -> bool:
        said = watched.nodes[0].run(
            ["calicoctl", "status", "--aggregator", PLACE, "-o", "json"], check=False
        )
        tree = json.loads(said.stdout)
        return [one["name"] for one in tree["nodes"] if one["source"] == "live"] == [
            "node1", "node2",
        ]  # fmt: skip

    proc.wait_until(both, "both nodes attend", timeout=HANG)


def test_what_was_seen_becomes_a_policy(watched: Lab, ends: dict[str, Pod]) -> None:
    arrived(watched)
    command = ["calicoctl", "policy", "recommend", "-n", "default", "--aggregator", PLACE]
    done = watched.nodes[0].run(command)
    assert "proved: none of 3 ends of connections that it allows would be denied" in done.stderr
    documents = [one for one in yaml.safe_load_all(done.stdout) if one]
    rules = [rule for one in documents for rule in one["spec"].get("ingress", ())]
    assert [rule["destination"]["ports"] for rule in rules] == [[8080]]
