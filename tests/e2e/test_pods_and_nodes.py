"""Two nodes of a plain network: who reaches whom, what is on the cable, and what tables say.

 router 10.99.1.254
  |            |
node1        node2        pool 10.65.0.0/16, without a tunnel
 a, b         c
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from lab import agents, cluster, pods, proc
from lab.cluster import Lab
from lab.demo import capture, look, traffic
from lab.demo.story import Story
from lab.demo.transcript import Transcript
from lab.demo.wiring import in_pod, interface, on_node
from lab.machine import FAST_PYTHON, PROBE
from lab.pods import Pod
from tests.e2e.conftest import say
from tests.e2e.test_settings import POOL
from tests.manifests.rendered import FOLDER, by_name, pod
from tests.support.patience import HANG

PORT = 8080
AGENTS = ("calico-felix", "calico-bgp", "calico-cni")
IDLE = 5.0
"""Seconds of rest in which processor time is counted; a longer rest costs no more of it."""
Scene = tuple[Lab, dict[str, Pod]]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """The lab, and its pods when all nodes know the ways to them."""
    name = f"pan{os.getpid()}"
    lab = cluster.up(name, nodes=2, topology="flat", say=say)
    try:
        lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOL)
        made = {
            one: pods.add(lab, one, node, ports=[f"tcp:{PORT}"])
            for one, node in (("a", "node1"), ("b", "node1"), ("c", "node2"))
        }
        for here, there in (("node1", "c"), ("node2", "a")):
            machine, target = lab.machine(here), made[there]
            proc.wait_until(
                lambda m=machine, t=target: pods_way(m.run(["ip", "route"]).stdout, t.address),  # type: ignore[misc]
                f"{here} knows the way to {there}",
                timeout=HANG,
            )
        yield lab, made
    finally:
        cluster.down(name)


def pods_way(table: str, address: str) -> bool:
    """Whether a table of `ip route` has a block of an address by another node. Pure."""
    start = address.rpartition(".")[0]
    return any(line.startswith(f"{start}.") and " via " in line for line in table.splitlines())


def seen_as(lab: Lab, source: Pod, targets: list[Pod]) -> dict[str, str]:
    """address -> the source address that the server there saw."""
    command = [
        *FAST_PYTHON,
        str(PROBE),
        "tcp",
        str(PORT),
        "60",
        *(t.address for t in targets),
    ]
    answers: dict[str, str] = json.loads(
        lab.machine(source.node).run(command, netns=source.netns).stdout
    )
    return answers


@pytest.mark.promise("M-2", "M-112", "F-37")
def test_pods_see_each_others_own_addresses_and_bare_packets_are_on_the_cable(
    scene: Scene,
) -> None:
    lab, made = scene
    with capture.capture(lab.router, lab.host("node2").port) as seen:
        for source in made.values():
            others = [other for other in made.values() if other is not source]
            wanted = {other.address: source.address for other in others}
            assert seen_as(lab, source, others) == wanted
        for source, target in permutations(made.values(), 2):
            assert pods.answers(lab, source, target.address)
    a, c = made["a"].address, made["c"].address
    assert seen.decode(f"src host {a} and dst host {c}")
    assert seen.decode(f"src host {c} and dst host {a}")
    for tunnel in ("ip proto 4", "udp port 4789", "ip proto 47"):
        assert not seen.decode(tunnel), tunnel
    for node in lab.nodes:
        assert not json.loads(node.run(["ip", "-j", "link", "show", "type", "bridge"]).stdout)


@pytest.mark.promise("M-3")
def test_pods_and_nodes_reach_each_other_own_and_other(scene: Scene) -> None:
    lab, made = scene
    for node in lab.plan.nodes:
        for one in made.values():
            assert pods.answers(lab, one, str(node.address.ip)), f"{one.title} to {node.name}"
            ping = ["ping", "-n", "-c", "1", "-W", "60", one.address]
            done = lab.machine(node.name).run(ping, check=False)
            assert done.returncode == 0, f"{node.name} to {one.title}"


@pytest.mark.promise("M-10")
def test_the_steps_of_a_pods_start_are_told_in_order_with_their_times(scene: Scene) -> None:
    _, made = scene
    for one in made.values():
        assert len(one.steps) >= 3, one.steps
        assert all(milliseconds >= 0 for milliseconds in one.steps.values())
    print(made["a"].steps)


@pytest.mark.promise("M-139", "M-256", "M-259", "F-1")
def test_the_commands_that_people_type_show_the_wiring(scene: Scene) -> None:
    """The demo's own look at a pod and its node, and what it leaves in the transcript."""
    lab, made = scene
    told: list[str] = []
    transcript = Transcript(told.append)
    story = Story(lab.name, told.append)
    story.lab = lab
    a = made["a"]
    node = lab.machine("node1")
    in_pod(node, a, transcript)
    on_node(story, a, transcript)
    text = "".join(told)
    for command in ("ip addr show eth0", "ip route", "ip neigh", "route -n", "ip link show cali"):
        assert f"$ {command}" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for wanted in (
        f"inet {a.address}/32",  # the pod's address
        "default via 169.254.1.1 dev eth0",  # its routes, as ip tells them
        "0.0.0.0 169.254.1.1 0.0.0.0 UG",  # and as route does
        "169.254.1.1 dev eth0 lladdr ee:ee:ee:ee:ee:ee PERMANENT",  # its ARP
        f"{a.address} dev {interface(a)} ",  # the node's way to it
        "blackhole 10.65.",
        f"via {lab.host('node2').address.ip} dev eth0",  # the way to the other node's pods
    ):
        assert any(wanted in line for line in lines), wanted
    assert f"{a.address}" in node.run(["route", "-n"]).stdout
    assert "Established" in node.run(["calicoctl", "node", "status"]).stdout


def spent(machine_pids: list[int]) -> float:
    """Seconds of processor time of these processes and those that they have waited for."""
    ticks = 0
    for pid in machine_pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.promise("M-204")
def test_agents_at_rest_use_less_than_the_manifest_requests(scene: Scene) -> None:
    lab, _ = scene
    node = by_name((FOLDER / "calico-etcd.yaml").read_text())["DaemonSet/calico-node"]
    asked = sum(
        int(one["resources"]["requests"]["cpu"].removesuffix("m"))
        for one in pod(node)["containers"]
    )
    titles = ("calico-node", *AGENTS)
    running = [pid for title in titles for pid in look.processes(lab.nodes[1], title)]
    assert len(running) == len(titles), running
    begun, before = time.monotonic(), spent(running)
    time.sleep(IDLE)
    used = (spent(running) - before) / (time.monotonic() - begun) * 1000
    print(f"{used:.0f} of {asked} thousandths of a processor")
    assert used < asked


@pytest.mark.promise("M-189")
def test_a_node_whose_agents_all_die_at_once_forwards_and_comes_back(scene: Scene) -> None:
    """What a grace period of zero does: SIGKILL for everything, and a new start."""
    lab, made = scene
    node = lab.machine("node2")
    routes = sorted(node.run(["ip", "route"]).stdout.splitlines())
    with traffic.between(lab, made["a"], made["c"], PORT) as seen:
        parents = look.processes(node, "calico-node")
        killed = [pid for title in AGENTS for pid in look.processes(node, title)]
        assert parents
        assert len(killed) >= len(AGENTS)
        for pid in (*parents, *killed):
            with contextlib.suppress(ProcessLookupError):  # the agents die with their supervisor
                os.kill(pid, signal.SIGKILL)
        proc.wait_until(
            lambda: not any(look.processes(node, title) for title in ("calico-node", *AGENTS)),
            "all agents are dead",
            timeout=HANG,
        )
        assert sorted(node.run(["ip", "route"]).stdout.splitlines()) == routes
        agents.start(node, lab.plan, {})
        node.wait_http(9099, "/readiness", timeout=HANG)
    print("\n".join(seen.lines))
    assert (seen.lost, seen.stream_error) == (0, "")
    agents.wait(node, timeout=HANG)
    later = pods.add(lab, "later", "node2", ports=[f"tcp:{PORT}"])
    assert seen_as(lab, made["c"], [later]) == {later.address: made["c"].address}
    pods.remove(lab, later)
    said = lab.nodes[0].run(["calicoctl", "ipam", "check"]).stdout
    assert "found 0 problems" in said, said
