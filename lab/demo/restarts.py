"""Check 6: felix, bgp and cni of a node are killed under traffic across racks; nothing is lost.

Each is gone by SIGKILL, comes back as a new process without help, and finds its tables as they
were. That the new ones work is shown by a new pod on that node afterwards.
"""

from __future__ import annotations

import os
import signal

from lab import pods
from lab.demo import look, routing, traffic
from lab.demo.reachability import PORT, WAIT
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.errors import LabError
from lab.machine import Machine
from lab.router import HOLD_SECONDS

VICTIM = "node1"
TITLES = ("calico-felix", "calico-bgp", "calico-cni")


def check(story: Story, transcript: Transcript) -> None:
    """Kill one after the other while the pings run."""
    one, other = story.pod("web-1"), story.pod("web-3")
    machine = story.lab.machine(VICTIM)
    before = look.tables(machine)
    with traffic.between(story.lab, one, other, PORT) as seen:
        for title in TITLES:
            kill(story, transcript, machine, title)
        serves(story, transcript)
        same(story, machine, before)
    transcript.note("\n".join(seen.lines))
    transcript.note("tables of the node (ip route, neigh, link, rule, iptables, ipset): as before")
    expect(seen.lost == 0, f"{seen.lost} of {seen.sent} pings lost")
    expect(seen.sent > 200, f"only {seen.sent} pings were sent")
    expect(not seen.stream_error, f"TCP stream: {seen.stream_error}")


def kill(story: Story, transcript: Transcript, machine: Machine, title: str) -> None:
    """SIGKILL a process; wait until another one does its work."""
    old = look.processes(machine, title)
    expect(old, f"{machine.name}: no process {title}")
    sessions = look.neighbours(story.lab)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    took = story.wait(
        lambda: bool(set(look.processes(machine, title)) - set(old)),
        f"{machine.name}: {title} comes back",
    )
    new = look.processes(machine, title)
    transcript.note(
        f"{machine.name}$ kill -KILL {old}  # {title}; new pid {new} after {took:.1f} s"
    )
    if title == "calico-bgp":
        expect(sessions.get(machine.name) == "Established", f"router: {sessions}")
        again = story.wait(
            lambda: routing.established(story) and routing.exact(story) is None,
            f"router: the session to {machine.name} is Established again",
            timeout=story.patience + HOLD_SECONDS,
        )
        transcript.note(f"router: session Established, table exact after {again:.1f} s")
        meshed(story, machine)


def meshed(story: Story, machine: Machine) -> None:
    """The mesh sessions are back too: until then a restarted speaker keeps all its routes.

    (Graceful restart: the next check would otherwise see a withdrawal late, and rightly so.)
    """
    quiet, peers = Transcript(lambda _: None), routing.expected_peers(story, machine.name)
    routing.sockets(story, quiet, machine.name, peers)
    routing.node_status(story, quiet, machine.name, peers)


def serves(story: Story, transcript: Transcript) -> None:
    """The new processes do their work: a pod is added, reached from another rack, and removed."""
    name = f"after-{VICTIM}"
    made = []

    def added() -> bool:
        try:
            made.append(pods.add(story.lab, name, VICTIM, namespace="web"))
        except LabError as error:
            transcript.note(f"ADD says: {error}")
            return False
        return True

    story.wait(added, f"{VICTIM}: CNI ADD works again")
    pod = made[0]
    try:
        reached = pods.ping(story.lab, story.pod("web-3"), pod.address, wait=WAIT)
        transcript.note(f"new pod {pod.title}: {pod.address}, ADD {pod.add_milliseconds:.1f} ms")
        expect(reached, f"{pod.title} is not reached from another rack")
    finally:
        pods.remove(story.lab, pod)


def same(story: Story, machine: Machine, before: dict[str, list[str]]) -> None:
    """The node's tables are what they were."""
    last: list[str] = []

    def equal() -> bool:
        last[:] = look.differences(before, look.tables(machine))
        return not last

    story.wait(equal, f"{machine.name}: tables as before; the difference is {last}")
