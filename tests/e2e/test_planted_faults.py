"""A check that cannot fail proves nothing: faults planted from outside must make theirs fail.

One lab, brought to the point where all checks up to `routing` hold; each test plants one fault,
sees the matching check fail, takes it back, and sees the check hold again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from lab import proc
from lab.demo import (
    deletion,
    look,
    matrix,
    nodes,
    policies,
    policy,
    pool,
    reachability,
    routing,
    wiring,
)
from lab.demo.story import Check, Outcome, Story, end, perform
from lab.demo.transcript import Transcript
from lab.machine import Machine
from tests.e2e.conftest import say, stopped
from tests.support.patience import HANG, wait_for

PATIENCE = HANG
IMPATIENCE = 2.0


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    """A lab with six pods in which everything holds."""
    made = Story(f"fault{os.getpid()}", say, PATIENCE)
    try:
        for check in (nodes.check, pool.check, wiring.check, reachability.check, routing.check):
            outcome = perform(made, check.__module__, check)
            assert outcome.ok, outcome.detail
        yield made
    finally:
        end(made)


def impatient(story: Story, check: Check) -> Outcome:
    """The outcome of a check that does not wait long for what will not come."""
    story.patience = IMPATIENCE
    try:
        return perform(story, check.__module__, check)
    finally:
        story.patience = PATIENCE


def holds(story: Story, check: Check) -> None:
    """The check holds (again)."""
    outcome = perform(story, check.__module__, check)
    assert outcome.ok, outcome.detail


def test_a_deleted_pod_route_is_seen_and_repaired(story: Story) -> None:
    pod = story.pod("web-3")
    machine = story.lab.machine(pod.node)
    with stopped(machine, "calico-felix"):
        machine.run(["ip", "route", "del", f"{pod.address}/32", "dev", wiring.interface(pod)])
        outcome = impatient(story, reachability.check)
        assert not outcome.ok
        assert "FAILED: these pairs fail" in outcome.detail
        assert pod.address in outcome.detail.rpartition("FAILED")[2]
    proc.wait_until(
        lambda: look.route_to(machine, pod.address) is not None, "the route is back", timeout=HANG
    )
    holds(story, reachability.check)


def test_a_lost_gateway_neighbour_is_seen(story: Story) -> None:
    pod = story.pod("db-1")
    machine = story.lab.machine(pod.node)
    entry = ["169.254.1.1", "dev", "eth0"]
    machine.run(["ip", "neigh", "del", *entry], netns=pod.netns)
    outcome = impatient(story, wiring.check)
    assert not outcome.ok
    assert "ip neigh: no line matches" in outcome.detail
    machine.run(
        ["ip", "neigh", "replace", *entry, "lladdr", wiring.MAC, "nud", "permanent"],
        netns=pod.netns,
    )
    holds(story, wiring.check)


def test_a_filtered_bgp_port_is_seen(story: Story) -> None:
    machine = story.lab.machine("node2")
    rules = [["INPUT", "-p", "tcp", "--dport", "179"], ["INPUT", "-p", "tcp", "--sport", "179"]]
    for rule in rules:
        machine.run(["iptables", "-I", *rule, "-j", "DROP"])
    try:
        proc.wait_until(
            lambda: look.neighbours(story.lab)["node2"] != "Established",
            "the router gives node2 up",
            timeout=HANG,
        )
        outcome = impatient(story, routing.check)
        assert not outcome.ok
        assert "BGP sessions to node1, node2, node3 are Established" in outcome.detail
    finally:
        for rule in rules:
            machine.run(["iptables", "-D", *rule, "-j", "DROP"])
    story.wait(lambda: routing.established(story), "node2 is Established again", timeout=HANG)
    holds(story, routing.check)
    holds(story, reachability.check)


@pytest.fixture(scope="class")
def guarded(story: Story) -> Iterator[Story]:
    """The same lab with default deny and the allow from a label in force."""
    quiet = Transcript(story.write)
    with policies.applied(story, quiet, policies.DENY, policies.allow("frontend")):
        holds(story, policy.enforced)
        yield story
    matrix.holds(story, quiet, matrix.everything, "policies deleted")


def sees(story: Story, *sentences: str) -> None:
    """The matrix is found wrong while felix is stopped, as told, and is repaired afterwards.

    On a busy machine an answer through an open door may come too late for one look.
    """

    def told() -> bool:
        outcome = impatient(story, policy.enforced)
        assert not outcome.ok
        failure = outcome.detail.rpartition("FAILED")[2]
        return all(sentence in failure for sentence in sentences)

    wait_for(told, sentences)


def sets_of(machine: Machine, address: str) -> list[str]:
    """Sets of selectors that hold an address."""
    words = [line.split() for line in machine.run(["ipset", "save"]).stdout.splitlines()]
    return [
        w[1] for w in words if w[0] == "add" and w[1].startswith("cali40s:") and w[2] == address
    ]


class TestPolicyFaults:
    """While policy is in force, which they share: each finds it whole and leaves it so."""

    def test_a_flushed_policy_chain_is_seen_and_repaired(self, guarded: Story) -> None:
        machine = guarded.lab.machine("node3")
        with stopped(machine, "calico-felix"):
            machine.run(["iptables", "-F", "cali-pi-np/db/allow-by-role"])
            sees(guarded, "tcp web-1 -> db-3 is closed", "udp db-1 -> db-3 is closed")
        holds(guarded, policy.enforced)

    def test_a_pods_chain_that_lets_all_pass_is_seen_and_repaired(self, guarded: Story) -> None:
        machine, pod = guarded.lab.machine("node2"), guarded.pod("db-2")
        with stopped(machine, "calico-felix"):
            machine.run(["iptables", "-I", f"cali-tw-{wiring.interface(pod)}", "-j", "ACCEPT"])
            sees(guarded, "tcp web-3 -> db-2 is OPEN", "tcp db-1 -> db-2 is OPEN")
        holds(guarded, policy.enforced)

    def test_a_removed_set_member_is_seen_and_repaired(self, guarded: Story) -> None:
        machine, frontend = guarded.lab.machine("node3"), guarded.pod("web-1").address
        found = sets_of(machine, frontend)
        assert found
        with stopped(machine, "calico-felix"):
            for name in found:
                machine.run(["ipset", "del", name, frontend])
            sees(guarded, "tcp web-1 -> db-3 is closed")
        holds(guarded, policy.enforced)
        assert sets_of(machine, frontend) == found

    def test_an_added_set_member_is_seen_and_repaired(self, guarded: Story) -> None:
        machine, batch = guarded.lab.machine("node3"), guarded.pod("web-3").address
        with stopped(machine, "calico-felix"):
            for name in sets_of(machine, guarded.pod("web-1").address):
                machine.run(["ipset", "add", name, batch])
            sees(guarded, "tcp web-3 -> db-3 is OPEN")
        holds(guarded, policy.enforced)


def test_a_leaked_address_is_seen(story: Story) -> None:
    """Last: the check of deletion ends the pods."""
    lab = story.lab
    block = look.blocks(lab)[-1].cidr
    key = f"{look.IPAM}/assignment/ipv4/block/{block.replace('/', '-')}"
    value = look.etcd(lab, key)[key]
    ordinal = value["unallocated"].pop()
    value["allocations"][ordinal] = len(value["attributes"])
    value["attributes"].append({"handle_id": "leak", "secondary": {"node": "node3"}})
    lab.etcd.run(["etcdctl", "put", key], stdin=json.dumps(value).encode())
    # With all patience: what it waits for comes, and the leak is seen without any wait.
    outcome = perform(story, deletion.check.__module__, deletion.check)
    assert not outcome.ok
    assert "addresses still allocated" in outcome.detail
    value = look.etcd(lab, key)[key]
    value["allocations"][ordinal] = None
    value["attributes"] = []
    value["unallocated"].append(ordinal)
    lab.etcd.run(["etcdctl", "put", key], stdin=json.dumps(value).encode())
    holds(story, deletion.check)
