"""Check 9: default deny, then an allow from a label, then neither; the exact matrix each time."""

from __future__ import annotations

from collections.abc import Collection

from lab.demo import matrix, policies, wiring
from lab.demo.matrix import Allowed
from lab.demo.story import POD_NAMES, Story
from lab.demo.transcript import Transcript
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


def show(story: Story, transcript: Transcript, pod: Pod) -> None:
    """The kernel's rules towards one pod, and the sets that they look into."""
    machine = story.lab.machine(pod.node)
    transcript.show(machine, ["iptables", "-S", "cali-tw-" + wiring.interface(pod)])
    transcript.show(machine, ["ipset", "list", "-name"])
