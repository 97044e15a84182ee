"""Check 9: default deny, then an allow from a label, then neither; the exact matrix each time."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from lab.demo import matrix, policies, wiring
from lab.demo.matrix import Allowed
from lab.demo.story import POD_NAMES, Story
from lab.demo.transcript import Transcript, expect
from lab.pods import Pod


def check(story: Story, transcript: Transcript) -> None:
    """Pods, and four matrices."""
    again(story, transcript)
    matrix.holds(story, transcript, matrix.everything, "before")
    with policies.applied(story, transcript):
        policies.apply(story, transcript, policies.DENY)
        matrix.holds(story, transcript, closed, "default deny in namespace db")
        policies.apply(story, transcript, policies.allow("frontend"))
        enforced(story, transcript)
        show(story, transcript, story.pod("db-1"))
        traced(story, transcript)
    matrix.holds(story, transcript, matrix.everything, "after")


def enforced(story: Story, transcript: Transcript) -> None:
    """Exactly what default deny and the allow from a label leave."""
    matrix.holds(story, transcript, by_roles({"frontend"}), "with the allow from a label")


def again(story: Story, transcript: Transcript) -> None:
    """The six pods, where an earlier check has deleted them."""
    present = {pod.name for pod in story.pods}
    for name in POD_NAMES:
        if name not in present:
            kind, _, number = name.partition("-")
            wiring.add(story, transcript, name, kind, f"node{number}")


def closed(_: str, __: Pod, target: Pod) -> bool:
    """Whether a probe passes with default deny in namespace db."""
    return target.namespace != "db"


def by_roles(tcp: Collection[str], udp: Collection[str] = ("store",)) -> Allowed:
    """The predicate with `policies.allow` for these roles."""

    def allowed(protocol: str, source: Pod, target: Pod) -> bool:
        if target.namespace != "db":
            return True
        role = source.labels["role"]
        return source.namespace == "web" and role in tcp if protocol == "tcp" else role in udp

    return allowed


def traced(story: Story, transcript: Transcript) -> None:
    """A denied probe, followed through both nodes: the cause is named with its place."""
    source, target = story.pod("db-2"), story.pod("db-1")
    here, there = story.lab.machine(source.node), story.lab.machine(target.node)
    words = ["calicoctl", "trace", source.title, target.title, "--port", "8080", "--wait", "0"]
    via = f"{there.name}={shlex.join(there.command([]))}"
    told = here.run([*words, "--timeout", "1", "--via", via]).stdout
    lines = told.splitlines()
    shown = [line for line in lines if "dropped" in line or "drops" in line or "  drop  " in line]
    transcript.note("\n".join([f"{here.name}$ {shlex.join(words)} --via ...", *lines[:3], *shown]))
    expect("NOT REACHED: no policy of tier default allows it" in told, f"the cause: {told}")


def show(story: Story, transcript: Transcript, pod: Pod) -> None:
    """The kernel's rules towards one pod, and the sets that they look into."""
    machine = story.lab.machine(pod.node)
    transcript.show(machine, ["iptables", "-S", "cali-tw-" + wiring.interface(pod)])
    transcript.show(machine, ["ipset", "list", "-name"])
