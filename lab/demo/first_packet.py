"""Check 10: a pod that is added while a deny is there gets no packet before its policy.

Two peers, on the pod's node and in another rack, send UDP at 1,000/s from before ADD to the address
that the pod will get: the head of the free list of its node's block. A packet socket in the pod's
namespace counts from before the pod has an interface. Without the deny the same packets do arrive.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import ip_network

from lab import pods, stream
from lab.demo import look, matrix, policies, policy
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.pods import Pod
from lab.stream import Stream

NODE = "node1"
PEERS = ("web-1", "web-3")
PORT = 9000
RATE = 1000
BEFORE_SECONDS = 0.3
AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Figures:
    """Packets sent to the pod's address and arrived, by peer; `control` came from its own node."""

    pod: Pod
    sent: dict[str, int]
    arrived: dict[str, int]
    control: int


def check(story: Story, transcript: Transcript) -> None:
    """With the deny, then without."""
    with policies.applied(story, transcript, policies.DENY, policies.allow("frontend")):
        matrix.holds(story, transcript, policy.by_roles({"frontend"}), "the deny is there")
        figures = late(story, transcript, "late-1")
        arrived = sum(figures.arrived.values())
        expect(arrived == 0, f"{arrived} packets arrived before or against the policy")
        expect(figures.control > 0, "the counter in the pod saw nothing at all, not even its node")
    matrix.holds(story, transcript, matrix.everything, "the deny is gone")
    figures = late(story, transcript, "late-2")
    for peer in PEERS:
        expect(figures.arrived[peer], f"without the deny nothing of {peer} arrived either")


def next_address(story: Story, transcript: Transcript, node: str) -> str:
    """The head of the free list of the node's block, from etcd."""
    block = next((b.cidr for b in look.blocks(story.lab) if b.node == node), "")
    expect(block, f"etcd names no block of {node}")
    key = f"{look.IPAM}/assignment/ipv4/block/{block.replace('/', '-')}"
    free = look.etcd(story.lab, key)[key]["unallocated"]
    address = str(ip_network(block)[free[0]])
    transcript.note(f"etcd$ etcdctl get {key}\nunallocated: {free[:4]}...: next is {address}")
    return address


def late(story: Story, transcript: Transcript, name: str) -> Figures:
    """Add a pod under fire; count; remove it."""
    lab = story.lab
    address = next_address(story, transcript, NODE)
    machine, counters = lab.machine(NODE), list[Stream]()
    senders = [begin(story, story.pod(peer), address) for peer in PEERS]
    try:
        time.sleep(BEFORE_SECONDS)
        pod = pods.add(
            lab,
            name,
            NODE,
            namespace="db",
            labels={"app": "db", "role": "store"},
            ports=["tcp:8080", "udp:8080"],
            prepared=lambda netns: counters.append(
                stream.begin(machine, netns, "count", str(PORT))
            ),
        )
        try:
            expect(pod.address == address, f"{name} got {pod.address}, not {address}")
            serve(story, pod)
            time.sleep(AFTER_SECONDS)
            count = counters[0].finish()
        finally:
            pods.remove(lab, pod)
    finally:
        reports = [sender.finish() for sender in senders]
    expect(count["lost"] == 0, f"the counter lost {count['lost']} packets")
    by_source: dict[str, int] = count["arrived"]
    sent = {peer: report["sent"] for peer, report in zip(PEERS, reports, strict=True)}
    arrived = {peer: by_source.pop(story.pod(peer).address, 0) for peer in PEERS}
    figures = Figures(pod, sent, arrived, sum(by_source.values()))
    note(transcript, figures)
    for peer in PEERS:
        expect(sent[peer] > RATE / 20, f"{peer} sent only {sent[peer]} packets")
    return figures


def begin(story: Story, peer: Pod, address: str) -> Stream:
    """One peer's fire."""
    words = ("send", address, str(PORT), str(RATE))
    return stream.begin(story.lab.machine(peer.node), peer.netns, *words)


def serve(story: Story, pod: Pod) -> None:
    """The pod's own node, which no policy keeps out, shows that the counter counts."""
    words = ("send", pod.address, str(PORT), "20")

    def sent() -> bool:
        sender = stream.begin(story.lab.machine(pod.node), None, *words)
        time.sleep(0.2)
        return bool(sender.finish()["sent"])

    story.wait(sent, f"{pod.node} sends to {pod.title}")


def note(transcript: Transcript, figures: Figures) -> None:
    """One line per peer."""
    pod = figures.pod
    transcript.note(
        f"pod {pod.title}: {pod.address}, ADD {pod.add_milliseconds:.1f} ms, under fire"
    )
    for peer, sent in figures.sent.items():
        arrived = figures.arrived[peer]
        transcript.note(f"    {peer}: {sent} sent since before ADD, {arrived} arrived in the pod")
    transcript.note(f"    its own node: {figures.control} arrived (the counter works)")
