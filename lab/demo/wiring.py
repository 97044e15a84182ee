"""Check 3: six pods by CNI ADD; a pod's and its node's tables, line by line.

In the pod: /32 on eth0, link route to 169.254.1.1, default through it, a permanent neighbour. On
the node: `cali` interface with MAC ee:ee:ee:ee:ee:ee, a /32 route per pod, blackhole for the block.
"""

from __future__ import annotations

import hashlib
import re

from lab import pods
from lab.demo import look
from lab.demo.story import POD_NAMES, Story
from lab.demo.transcript import Transcript, expect
from lab.machine import Machine
from lab.objects import POOL
from lab.pods import Pod

MAC = "ee:ee:ee:ee:ee:ee"
GATEWAY = "169.254.1.1"
PORTS = ("tcp:8080", "udp:8080")
ROLES = {"web-1": "frontend", "web-2": "frontend", "web-3": "batch"}


def interface(pod: Pod) -> str:
    """Calico's name of a pod's host interface. Pure."""
    return "cali" + hashlib.sha1(f"{pod.namespace}.{pod.name}".encode()).hexdigest()[:11]


def check(story: Story, transcript: Transcript) -> None:
    """Add what is missing of the six pods, then look at each."""
    present = {pod.name for pod in story.pods}
    for name in POD_NAMES:
        if name not in present:
            kind, _, number = name.partition("-")
            add(story, transcript, name, kind, f"node{number}")
    for pod in story.all_pods():
        shown = Transcript(lambda _: None) if pod.node != "node1" else transcript
        in_pod(story.lab.machine(pod.node), pod, shown)
        on_node(story, pod, shown)
    addresses = {pod.address for pod in story.pods}
    expect(len(addresses) == len(story.pods), f"addresses are not unique: {sorted(addresses)}")
    proxy(story, transcript)


def add(story: Story, transcript: Transcript, name: str, namespace: str, node: str) -> None:
    """One pod, as a runtime starts it."""
    labels = {"app": namespace, "role": ROLES.get(name, "store")}
    pod = pods.add(story.lab, name, node, namespace=namespace, labels=labels, ports=PORTS)
    story.pods.append(pod)
    transcript.note(
        f"pod {pod.title} on {node}: netns {pod.netns}, address {pod.address}, "
        f"CNI ADD {pod.add_milliseconds:.1f} ms"
    )
    steps = ", ".join(f"{step} {ms} ms" for step, ms in pod.steps.items())
    transcript.note(f"    steps: {steps}")


def has_line(text: str, pattern: str, where: str) -> None:
    """CheckFailed unless one line of the text matches the whole pattern (spaces trimmed)."""
    lines = [line.strip() for line in text.splitlines()]
    expect(
        any(re.fullmatch(pattern, line) for line in lines),
        f"{where}: no line matches `{pattern}` in:\n{text}",
    )


def in_pod(machine: Machine, pod: Pod, transcript: Transcript) -> None:
    """Check the pod's own view of its network."""
    where = f"pod {pod.title}"
    address = re.escape(pod.address)
    text = transcript.show(machine, ["ip", "addr", "show", "eth0"], pod=pod)
    has_line(text, rf"inet {address}/32( brd \S+)? scope global eth0", f"{where}: ip addr")
    expect(pod.address.startswith("10.65."), f"{where}: {pod.address} is not in {POOL}")
    text = transcript.show(machine, ["ip", "route"], pod=pod)
    has_line(text, rf"default via {re.escape(GATEWAY)} dev eth0.*", f"{where}: ip route")
    has_line(text, rf"{re.escape(GATEWAY)} dev eth0 .*scope link.*", f"{where}: ip route")
    expect(len(text.strip().splitlines()) == 2, f"{where}: two routes expected:\n{text}")
    text = transcript.show(machine, ["ip", "neigh"], pod=pod)
    has_line(text, rf"{re.escape(GATEWAY)} dev eth0 lladdr {MAC} PERMANENT", f"{where}: ip neigh")
    transcript.show(machine, ["route", "-n"], pod=pod)


def on_node(story: Story, pod: Pod, transcript: Transcript) -> None:
    """Check the node's kernel state for the pod."""
    machine = story.lab.machine(pod.node)
    name, where = interface(pod), f"{pod.node}, pod {pod.title}"
    text = transcript.show(machine, ["ip", "link", "show", name], check=False)
    has_line(text, rf"link/ether {MAC} brd .*", f"{where}: ip link show {name}")
    expect("state UP" in text, f"{where}: {name} is not up:\n{text}")
    story.wait(lambda: look.route_to(machine, pod.address) is not None, f"{where}: a /32 route")
    text = transcript.show(machine, ["ip", "route"])
    has_line(text, rf"{re.escape(pod.address)} dev {name} .*scope link.*", f"{where}: ip route")
    block = next((b.cidr for b in look.blocks(story.lab) if b.node == pod.node), "")
    expect(block, f"{where}: etcd names no block of this node")
    has_line(text, rf"blackhole {re.escape(block)} .*", f"{where}: ip route")


def proxy(story: Story, transcript: Transcript) -> None:
    """Proxy ARP answers where the permanent neighbour is lost; forwarding is on."""
    for pod in story.all_pods():
        machine = story.lab.machine(pod.node)
        name = interface(pod)
        settings = [f"net.ipv4.conf.{name}.proxy_arp", f"net.ipv4.conf.{name}.forwarding"]
        shown = transcript if pod.name == POD_NAMES[0] else Transcript(lambda _: None)
        values = shown.show(machine, ["sysctl", "-n", *settings]).split()
        expect(values == ["1", "1"], f"{pod.node}: {settings} should be 1 1, are {values}")
