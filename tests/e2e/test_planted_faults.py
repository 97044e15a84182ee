"""A check that cannot fail proves nothing: faults planted from outside must make theirs fail.

One lab, brought to the point where all checks up to `routing` hold; each test plants one fault,
sees the matching check fail, takes it back, and sees the check hold again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from lab import proc
from lab.demo import deletion, look, nodes, pool, reachability, routing, wiring
from lab.demo.story import Check, Outcome, Story, end, perform

PATIENCE = 20.0
IMPATIENCE = 2.0


def say(text: str) -> None:
    """The story into pytest's captured output."""
    print(text, file=sys.stderr)


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


@contextlib.contextmanager
def stopped(story: Story, node: str, title: str) -> Iterator[None]:
    """A process of a node does nothing while the body runs."""
    pids = look.processes(story.lab.machine(node), title)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_deleted_pod_route_is_seen_and_repaired(story: Story) -> None:
    pod = story.pod("web-3")
    machine = story.lab.machine(pod.node)
    with stopped(story, pod.node, "calico-felix"):
        machine.run(["ip", "route", "del", f"{pod.address}/32", "dev", wiring.interface(pod)])
        outcome = impatient(story, reachability.check)
        assert not outcome.ok
        assert "FAILED: these pairs fail" in outcome.detail
        assert pod.address in outcome.detail.rpartition("FAILED")[2]
    took = proc.wait_until(
        lambda: look.route_to(machine, pod.address) is not None, "the route is back", timeout=5
    )
    assert took < 5
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
            timeout=15,
        )
        outcome = impatient(story, routing.check)
        assert not outcome.ok
        assert "BGP sessions to node1, node2, node3 are Established" in outcome.detail
    finally:
        for rule in rules:
            machine.run(["iptables", "-D", *rule, "-j", "DROP"])
    story.wait(lambda: routing.established(story), "node2 is Established again", timeout=60)
    holds(story, routing.check)
    holds(story, reachability.check)


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
    outcome = impatient(story, deletion.check)
    assert not outcome.ok
    assert "addresses still allocated" in outcome.detail
    value = look.etcd(lab, key)[key]
    value["allocations"][ordinal] = None
    value["attributes"] = []
    value["unallocated"].append(ordinal)
    lab.etcd.run(["etcdctl", "put", key], stdin=json.dumps(value).encode())
    holds(story, deletion.check)
