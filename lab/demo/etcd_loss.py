"""Check 11: etcd is killed and comes back; traffic and policy go on, a later change is enforced.

While it is away nothing is lost and nothing opens; what was asked for afterwards happens.
"""

from __future__ import annotations

import os
import signal
import time

from lab import datastore, proc
from lab.demo import look, matrix, policies, policy, traffic
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect

AWAY_SECONDS = 2.0


def check(story: Story, transcript: Transcript) -> None:
    """Kill, look, restart, change."""
    lab = story.lab
    with policies.applied(story, transcript, policies.DENY, policies.allow("frontend")):
        matrix.holds(story, transcript, policy.by_roles({"frontend"}), "before")
        with traffic.between(lab, story.pod("web-1"), story.pod("db-3"), matrix.PORT) as seen:
            kill(story, transcript)
            begun = time.monotonic()
            matrix.holds(story, transcript, policy.by_roles({"frontend"}), "without etcd")
            time.sleep(max(0.0, begun + AWAY_SECONDS - time.monotonic()))
            datastore.start(lab.etcd, lab.plan)
            datastore.wait(lab.etcd)
            transcript.note(f"etcd serves again after {time.monotonic() - begun:.1f} s")
            policies.apply(story, transcript, policies.allow("batch"))
            matrix.holds(story, transcript, policy.by_roles({"batch"}), "after the change")
        transcript.note("\n".join(seen.lines))
        expect(seen.sent > 200, f"only {seen.sent} pings were sent")
        expect(seen.lost == 0, f"{seen.lost} of {seen.sent} pings lost")
        expect(not seen.stream_error, f"TCP stream: {seen.stream_error}")
    matrix.holds(story, transcript, matrix.everything, "all policies deleted")


def kill(story: Story, transcript: Transcript) -> None:
    """SIGKILL, as a power cut for the process."""
    old = look.processes(story.lab.etcd, "etcd")
    expect(old, "etcd: no process etcd")
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    story.wait(
        lambda: not look.processes(story.lab.etcd, "etcd"), "etcd ends", timeout=proc.PATIENCE
    )
    transcript.note(f"etcd$ kill -KILL {old}")
