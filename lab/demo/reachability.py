"""Check 4: all 30 pairs of pods by ping and TCP, nodes and pods both ways, on bare IP.

The server says which address it saw: no NAT between pods. A capture on a rack link shows pod
addresses in the outer header: no tunnel. traceroute names each hop.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

from lab import pods, proc
from lab.demo import look
from lab.demo.capture import Capture, capture
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.machine import FAST_PYTHON, PROBE, Machine
from lab.objects import POOL
from lab.pod_containers import RESPONDER
from lab.pods import Pod
from lab.topology import Host

PORT = 8080
WAIT = 20.0
"""Seconds for an answer that comes at once, one packet, one try; fewer where patience ends."""


def check(story: Story, transcript: Transcript) -> None:
    """Wait until the kernels hold the routes, then every probe must pass at the first try."""
    converged(story, transcript)
    watched = story.lab.host("node3")
    with capture(story.lab.router, watched.port) as seen:
        matrix(story, transcript)
        with_nodes(story, transcript)
    bare(seen, transcript, watched)
    outside(story, transcript)
    paths(story, transcript)


def converged(story: Story, transcript: Transcript) -> None:
    """Every node's kernel has a route to every other node's block, the router's to every block."""
    owned = look.blocks(story.lab)
    expect(len(owned) >= len(story.lab.nodes), f"etcd: a block per node expected: {owned}")
    for machine in (story.lab.router, *story.lab.nodes):
        for block in owned:
            if block.node != machine.name:
                story.wait(
                    lambda m=machine, b=block: look.route_to(m, b.cidr) is not None,  # type: ignore[misc]
                    f"{machine.name}: a route to {block.cidr} of {block.node}",
                )
    transcript.show(story.lab.nodes[0], ["ip", "route"])


def matrix(story: Story, transcript: Transcript) -> None:
    """30 pings at once, 30 TCP connections at once."""
    everyone, wait = story.all_pods(), min(WAIT, story.patience)
    pairs = list(permutations(everyone, 2))
    with ThreadPoolExecutor(max_workers=10) as pool:
        pings = list(
            pool.map(lambda pair: pods.ping(story.lab, pair[0], pair[1].address, wait=wait), pairs)
        )
        answers = list(pool.map(lambda pod: ask(story, pod, everyone, wait), everyone))
    lines, wrong = [], []
    for (source, target), pinged in zip(pairs, pings, strict=True):
        saw = answers[everyone.index(source)].get(target.address, "no answer")
        lines.append(
            f"{source.name:6} {source.address:14} -> {target.name:6} {target.address:14} "
            f"ping {'ok' if pinged else 'LOST'}, TCP: server saw {saw}"
        )
        if not pinged or saw != source.address:
            wrong.append(lines[-1])
    transcript.note("\n".join(lines))
    transcript.note(f"{len(lines) - len(wrong)} of {len(lines)} pairs pass by ping and by TCP")
    expect(not wrong, "these pairs fail:\n" + "\n".join(wrong))


def ask(story: Story, pod: Pod, everyone: list[Pod], wait: float) -> dict[str, str]:
    """address -> what the server there saw as the pod's address."""
    others = [other.address for other in everyone if other is not pod]
    command = [*FAST_PYTHON, str(PROBE), "tcp", str(PORT), f"{wait:g}", *others]
    done = story.lab.machine(pod.node).run(command, netns=pod.netns)
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def with_nodes(story: Story, transcript: Transcript) -> None:
    """Each node to each pod and each pod to each node, own and other."""
    lab = story.lab
    forth = [(machine, pod) for machine in lab.nodes for pod in story.all_pods()]
    back = [(pod, node) for pod in story.all_pods() for node in lab.plan.nodes]
    with ThreadPoolExecutor(max_workers=10) as pool:
        to_pods = list(pool.map(lambda pair: ping_from_node(*pair), forth))
        to_nodes = list(
            pool.map(lambda pair: pods.ping(lab, pair[0], str(pair[1].address.ip), wait=WAIT), back)
        )
    lost = [f"{m.name} -> {p.title}" for (m, p), ok in zip(forth, to_pods, strict=True) if not ok]
    lost += [f"{p.title} -> {n.name}" for (p, n), ok in zip(back, to_nodes, strict=True) if not ok]
    transcript.note(
        f"node to pod: {sum(to_pods)} of {len(to_pods)} pings, "
        f"pod to node: {sum(to_nodes)} of {len(to_nodes)} pings (own and other nodes)"
    )
    expect(not lost, f"no answer: {lost}")


def ping_from_node(machine: Machine, pod: Pod) -> bool:
    """Whether the pod answers the node."""
    command = ["ping", "-n", "-c", "1", "-W", f"{WAIT:g}", pod.address]
    return machine.run(command, check=False).returncode == 0


def bare(seen: Capture, transcript: Transcript, host: Host) -> None:
    """The packets on the cable are IP from pod to pod, without a tunnel."""
    inside = f"src net {POOL} and dst net {POOL}"
    packets = seen.decode(inside)
    sample = "\n".join(packets[:6])
    transcript.note(f"router$ tcpdump -nn -i {host.port} '{inside}'   # {host.name}'s cable")
    transcript.note(f"{sample}\n... {len(packets)} packets between pods")
    expect(packets, "the capture shows no packet between pods")
    for tunnel in ("ip proto 4", "udp port 4789", "ip proto 47"):
        tunnelled = seen.decode(tunnel)
        transcript.note(f"router$ tcpdump -nn -r rack.pcap '{tunnel}'   # {len(tunnelled)} packets")
        expect(not tunnelled, f"encapsulated packets ({tunnel}) on the rack link: {tunnelled[:3]}")


def outside(story: Story, transcript: Transcript) -> None:
    """Outside the pool (here: to etcd's machine) a pod appears as its node: natOutgoing."""
    pod = story.pod("web-1")
    machine = story.lab.machine(pod.node)
    node = str(story.lab.host(pod.node).address.ip)
    with server(story.lab.etcd) as address:
        command = [*FAST_PYTHON, str(PROBE), "tcp", str(PORT), f"{WAIT:g}", address]
        answers = json.loads(machine.run(command, netns=pod.netns).stdout)
    transcript.note(f"{pod.title} -> {address} outside the pool: seen as {answers[address]}")
    expect(answers[address] == node, f"{pod.title} outside the pool should be seen as {node}")


@contextlib.contextmanager
def server(machine: Machine) -> Iterator[str]:
    """A responder outside the cluster; yields its address."""
    log = "/run/responder.log"
    machine.path(log).write_text("")
    running = machine.start(
        [*FAST_PYTHON, str(RESPONDER), f"tcp:{PORT}"],
        output=log,
    )
    try:
        file = machine.path(log)
        proc.wait_until(lambda: "listening" in file.read_text(), "responder", timeout=proc.PATIENCE)
        yield "10.99.0.1"
    finally:
        running.kill()
        running.wait()


def paths(story: Story, transcript: Transcript) -> None:
    """Hop by hop: same node, same rack, across racks."""
    source, near = story.pod("web-1"), story.lab.host("node1")
    gateway = str(near.segment.gateway)
    ways: list[tuple[str, list[str]]] = [
        ("db-1", []),
        ("web-2", [str(story.lab.host("node2").address.ip)]),
        ("web-3", [gateway, str(story.lab.host("node3").address.ip)]),
    ]
    for name, between in ways:
        target = story.pod(name)
        command = ["traceroute", "-n", "-q", "1", "-w", f"{WAIT:g}", "-m", "8", target.address]
        text = transcript.show(story.lab.machine(source.node), command, pod=source)
        hops = [line.split()[1] for line in text.splitlines()[1:] if line.strip()]
        expected = [str(near.address.ip), *between, target.address]
        expect(hops == expected, f"path to {name}: expected {expected}, found {hops}")
