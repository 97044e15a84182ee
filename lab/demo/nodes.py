"""Check 1: etcd, three nodes and the router are up; every node is in the datastore."""

from __future__ import annotations

from lab import cluster, proc
from lab.demo import look
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect

PROCESSES = ("calico-felix", "calico-bgp", "calico-cni")


def check(story: Story, transcript: Transcript) -> None:
    """Bring the lab up and look at what runs."""
    story.lab = cluster.up(story.lab_name, nodes=3, topology="racks", say=transcript.note)
    lab = story.lab
    transcript.show(lab.etcd, ["etcdctl", "endpoint", "health"])
    transcript.show(lab.router, ["birdc", "show", "status"])
    prefix = f"{look.RESOURCES}/nodes/"
    transcript.show(lab.etcd, ["etcdctl", "get", "--prefix", "--keys-only", prefix])
    keys = look.etcd(lab, prefix)
    for node in lab.plan.nodes:
        spec = keys.get(prefix + node.name, {}).get("spec", {})
        address = spec.get("bgp", {}).get("ipv4Address")
        expect(
            address == str(node.address),
            f"etcd: Node {node.name} should have the address {node.address}, has {address}",
        )
    expect(len(keys) == 3, f"etcd: 3 Node keys expected, found {sorted(keys)}")
    processes(story, transcript)


def processes(story: Story, transcript: Transcript) -> None:
    """Every node runs the three agents, under names that `ps` shows."""
    for machine in story.lab.nodes:
        pids = [str(pid) for pid in machine.pids()]
        expect(pids, f"{machine.name}: no process runs")
        transcript.show(machine, ["ps", "-o", "pid,ppid,user,args", "-p", ",".join(pids)])
        titles = [proc.command_of(int(pid)) for pid in pids]
        for name in PROCESSES:
            expect(
                any(title.split(" ")[0] == name for title in titles),
                f"{machine.name}: no process is called {name}: {titles}",
            )
