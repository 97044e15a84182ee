"""Check 12: felix is killed while it enforces a policy change under traffic, several times.

Three pods send UDP to a fourth, each datagram from a port of its own, so that none passes by an
earlier one's connection. One is allowed before and after every change, one never, one is what
changes. No datagram of the first may be missing, none of the second may arrive, and each change
holds in the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from lab import stream
from lab.demo import look, matrix, policies, policy
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.machine import Machine
from lab.pods import Pod
from lab.stream import Stream

TARGET = "db-3"
ALWAYS, CHANGING, NEVER = "web-1", "web-3", "db-1"
PORT = 8081
RATE = 200
NARROW, WIDE = ("frontend",), ("frontend", "batch")
TITLE = "calico-felix"
# When felix is killed: seconds after etcd tells of the policy; None: before it is written.
MOMENTS = (0.0, 0.01, 0.03, None)
SILENT = Transcript(lambda _: None)


def check(story: Story, transcript: Transcript) -> None:
    """Changes and kills under fire, then the sums."""
    first = policies.allow("frontend", udp=NARROW)
    with policies.applied(story, transcript, policies.DENY, first):
        matrix.holds(story, transcript, policy.by_roles({"frontend"}, NARROW), "before")
        sent, arrived = under_fire(story, transcript)
    for name in (ALWAYS, CHANGING, NEVER):
        transcript.note(f"{name} -> {TARGET}: {sent[name]} datagrams sent, {arrived[name]} arrived")
    expect(sent[ALWAYS] > RATE, f"only {sent[ALWAYS]} datagrams were sent")
    expect(
        arrived[ALWAYS] == sent[ALWAYS],
        f"{sent[ALWAYS] - arrived[ALWAYS]} of {sent[ALWAYS]} allowed datagrams were dropped",
    )
    expect(arrived[NEVER] == 0, f"{arrived[NEVER]} forbidden datagrams arrived")
    expect(
        0 < arrived[CHANGING] < sent[CHANGING],
        f"{arrived[CHANGING]} of {sent[CHANGING]} arrived where only some were allowed",
    )
    matrix.holds(story, transcript, matrix.everything, "all policies deleted")


def under_fire(story: Story, transcript: Transcript) -> tuple[dict[str, int], dict[str, int]]:
    """Every change with its kill, while three pods send; what was sent and what arrived, by pod."""
    target = story.pod(TARGET)
    senders = {name: story.pod(name) for name in (ALWAYS, CHANGING, NEVER)}
    machine = story.lab.machine(target.node)
    counter = stream.begin(machine, target.netns, "count", str(PORT))
    fire: dict[str, Stream] = {}
    try:
        for name, pod in senders.items():
            fire[name] = begin(story, pod, target)
        for number, moment in enumerate(MOMENTS):
            change(story, transcript, NARROW if number % 2 else WIDE, moment)
    finally:
        reports = {name: sender.finish() for name, sender in fire.items()}
        time.sleep(0.2)
        count = counter.finish()
    expect(count["lost"] == 0, f"the counter lost {count['lost']} packets")
    sent = {name: report["sent"] + report["errors"] for name, report in reports.items()}
    arrived = {name: count["arrived"].get(pod.address, 0) for name, pod in senders.items()}
    return sent, arrived


def begin(story: Story, source: Pod, target: Pod) -> Stream:
    """One pod's datagrams."""
    words = ("fresh", target.address, str(PORT), str(RATE))
    return stream.begin(story.lab.machine(source.node), source.netns, *words)


def change(
    story: Story, transcript: Transcript, udp: tuple[str, ...], moment: float | None
) -> None:
    """Apply a policy, kill felix of the target's node at a moment around that, see it enforced."""
    machine = story.lab.machine(story.pod(TARGET).node)
    document = policies.allow("frontend", udp=udp)
    if moment is None:
        old = kill(machine)
        policies.apply(story, SILENT, document)
        when = "before the policy is written"
    else:
        with ThreadPoolExecutor(max_workers=1) as pool, watched(story) as written:
            applying = pool.submit(policies.apply, story, SILENT, document)
            written()
            time.sleep(moment)
            old = kill(machine)
            applying.result()
        when = f"{moment * 1000:.0f} ms after etcd told of the policy"
    transcript.note(f"UDP from {', '.join(udp)}: {machine.name}$ kill -KILL {old}  # felix, {when}")
    story.wait(
        lambda: bool(set(look.processes(machine, TITLE)) - set(old)),
        f"{machine.name}: {TITLE} comes back",
    )
    matrix.holds(story, transcript, policy.by_roles({"frontend"}, udp), "with felix back")


@contextlib.contextmanager
def watched(story: Story) -> Iterator[Callable[[], object]]:
    """Yields what returns when the policy is written, by etcd's own watch."""
    etcd, key = story.lab.etcd, f"{look.RESOURCES}/networkpolicies/db/allow-by-role"
    answer = json.loads(etcd.run(["etcdctl", "get", key, "-w", "json"]).stdout)
    since = answer["header"]["revision"] + 1
    watch = etcd.start(["timeout", "120", "etcdctl", "watch", key, f"--rev={since}"])
    assert watch.stdout is not None
    try:
        yield watch.stdout.readline
    finally:
        watch.terminate()
        watch.communicate()


def kill(machine: Machine) -> list[int]:
    """SIGKILL to felix; which processes that were."""
    pids = look.processes(machine, TITLE)
    expect(pids, f"{machine.name}: no process {TITLE}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids
