"""A cluster of two kinds of node: one routes by `calico-bgp`, one by BIRD as Calico sets it up.

    node1 10.99.1.1, calico-bgp  ---- rack 1 ----  node2 10.99.1.2, BIRD

node2 begins as a node of ours, so that its pods and their addresses come from where they always
do; then BIRD takes the place of `calico-bgp` with the settings that Calico gives it: the mesh
session named after the peer, ADD-PATH, graceful restart, no TTL rule, next hops resolved by the
table, its block a blackhole, single addresses kept inside it, the kernel's table learned and
kept.

1. Both sides hold the session, and each has the other's block in its kernel, by that node.
2. Pods of both sides reach each other, both ways.
3. BIRD is killed and started with `-R`: no packet is lost; calico-bgp likewise.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from lab import agents, proc
from lab.demo import look
from lab.machine import Machine
from tests.support.patience import HANG
from tests.tunnels.scene import Scene, scene

OURS, BIRDS = "node1", "node2"
CONFIG, CONTROL = "/etc/bird/bird.conf", "/run/bird/bird.ctl"


def configuration(own: str, peer: str, block: str) -> str:
    """BIRD's file on a node of Calico with a mesh of two and a pool that is not encapsulated."""
    mesh = f"Mesh_{peer.replace('.', '_')}"
    waits = "passive on;" if peer > own else ""  # Calico compares the text
    return f"""
log "/var/log/bird.log" all;
router id {own};
protocol device {{ scan time 2; }}
protocol direct {{ ipv4; interface -"cali*", -"kube-ipvs*", "*"; }}
protocol static own_blocks {{ ipv4; route {block} blackhole; }}

filter to_kernel {{ accept; }}
filter to_peers {{
  if net = {block} then accept;      # the block as a whole,
  if net ~ {block} then reject;      # nothing out of it,
  if net ~ 10.65.0.0/16 then accept; # and what else lies in a pool
  reject;
}}
protocol kernel {{
  learn; persist; scan time 2; graceful restart; merge paths on;
  ipv4 {{ import all; export filter to_kernel; }};
}}
template bgp calico {{
  local {own} as 64512; multihop; ttl security off; {waits}
  graceful restart; connect delay time 2; connect retry time 5; error wait time 5, 30;
  ipv4 {{ import all; export filter to_peers; gateway recursive; add paths on; }};
}}
protocol bgp {mesh} from calico {{ neighbor {peer} as 64512; }}
"""


def start_bird(machine: Machine) -> None:
    """As Calico does: it recovers what its peers kept."""
    machine.run(["bird", "-R", "-c", CONFIG, "-s", CONTROL])


@pytest.fixture(scope="module")
def mixed() -> Iterator[Scene]:
    """The cluster, with BIRD in the place of calico-bgp on node2."""
    with scene(f"birdnode{os.getpid()}", nodes=2, peers=False) as made:
        made.connected()
        take_over(made)
        yield made


def take_over(made: Scene) -> None:
    """End calico-bgp on node2, and start BIRD; felix goes on as before."""
    machine = made.machine(BIRDS)
    for pid in look.processes(machine, "calico-node"):
        os.kill(pid, signal.SIGTERM)
    proc.wait_until(lambda: not look.processes(machine, "calico-bgp"), "its end", timeout=HANG)
    own, peer = (str(made.lab.host(node).address.ip) for node in (BIRDS, OURS))
    machine.path(CONFIG).write_text(configuration(own, peer, block_of(made, BIRDS)))
    start_bird(machine)
    settings = agents.environment(made.lab.plan, BIRDS)
    machine.start(
        ["calico-node", "run", "--only", "felix"], environment=settings, output=str(agents.LOG)
    )


def block_of(made: Scene, node: str) -> str:
    """The block that holds the node's pod."""
    return str(ip_network(f"{made.pods[node].address}/26", strict=False))


def status(made: Scene) -> dict[str, Any]:
    """What our node's bgp says."""
    text = made.machine(OURS).path("/var/run/calico/status/bgp.json").read_text()
    told: dict[str, Any] = json.loads(text)
    return told


def session(made: Scene) -> bool:
    """Both ends say Established."""
    peers = {peer["address"]: peer["info"] for peer in status(made)["peers"]}
    theirs = made.machine(BIRDS).run(["birdc", "-s", CONTROL, "show", "protocols"], check=False)
    lines = [line for line in theirs.stdout.splitlines() if line.startswith("Mesh_")]
    ours = peers.get(str(made.lab.host(BIRDS).address.ip))
    return ours == "Established" and all("Established" in line for line in lines) and bool(lines)


@pytest.mark.promise("F-38")
def test_both_route_pods(mixed: Scene) -> None:
    """Expectations 1 and 2."""
    proc.wait_until(lambda: session(mixed), "the session", timeout=HANG)
    for here, there, protocol in ((OURS, BIRDS, ""), (BIRDS, OURS, "bird")):
        hop = str(mixed.lab.host(there).address.ip)
        proc.wait_until(
            lambda here=here, there=there, hop=hop: mixed.route(here, there).get("gateway") == hop,  # type: ignore[misc]
            f"{here}'s route to {there}'s block",
            timeout=HANG,
        )
        assert protocol in (mixed.route(here, there).get("protocol"), "")
    mixed.connected()


@pytest.mark.promise("F-43")
@pytest.mark.promise("PAIN-16")
def test_restarts_lose_nothing(mixed: Scene) -> None:
    """Expectation 3."""
    proc.wait_until(lambda: session(mixed), "the session", timeout=HANG)
    mixed.connected()
    with mixed.traffic((OURS, BIRDS)) as seen:
        machine = mixed.machine(BIRDS)
        for pid in look.processes(machine, "bird"):
            os.kill(pid, signal.SIGKILL)
        proc.wait_until(lambda: not session(mixed), "its end is noticed", timeout=HANG)
        start_bird(machine)
        proc.wait_until(lambda: session(mixed), "the session again", timeout=HANG)
        (agent,) = look.processes(mixed.machine(OURS), "calico-bgp")
        os.kill(agent, signal.SIGKILL)
        # It may be back before anybody looks at its end; the status says who wrote it.
        proc.wait_until(
            lambda: status(mixed)["pid"] != agent and session(mixed),
            "the session again",
            timeout=HANG,
        )
    assert (seen.lost, seen.stream_error) == (0, ""), seen.lines
