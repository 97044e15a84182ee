"""Traffic that runs while something is done to a node: pings at 100/s and a TCP stream."""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from lab import proc
from lab.cluster import Lab
from lab.demo.transcript import CheckFailed
from lab.machine import FAST_PYTHON, PROBE
from lab.pods import Pod
from lab.probe import BEGUN

_SUMMARY = re.compile(r"(\d+) packets transmitted, (\d+) received.*")
_ANSWER = re.compile(r"icmp_seq=(\d+) ttl=")
LOG = "/run/ping.log"
INTERVAL = "0.009"  # ping(8) rounds 0.01 up: 60 a second on a kernel with 250 Hz


@dataclass
class Traffic:
    """Counts of sent and lost packets; filled when the traffic has ended."""

    lab: Lab
    ends: tuple[Pod, Pod]
    lines: list[str] = field(default_factory=list)
    lost: int = 0
    sent: int = 0
    lost_after: int = 0
    """Of `lost`, those that were sent after `settled`; all where it was not called."""
    stream_error: str = ""
    marks: list[int] = field(default_factory=lambda: [0, 0])
    """The last ping of each way that was answered at `settled`."""

    def answered(self) -> list[int]:
        """The last ping that was answered, each way."""
        logs = (self.lab.machine(pod.node).path(LOG).read_text() for pod in self.ends)
        return [max(map(int, _ANSWER.findall(text)), default=0) for text in logs]

    def settled(self) -> None:
        """From now on no packet may be lost: returns when enough have come through since."""
        self.marks = self.answered()
        self.go_on(50)

    def go_on(self, count: int) -> None:
        """Wait until `count` more pings are answered each way."""
        before = self.answered()
        proc.wait_until(
            lambda: all(
                now >= then + count for now, then in zip(self.answered(), before, strict=True)
            ),
            f"{count} pings are answered each way",
            timeout=proc.PATIENCE,
        )


@contextlib.contextmanager
def between(lab: Lab, one: Pod, other: Pod, port: int) -> Iterator[Traffic]:
    """Ping both ways every 10 ms and hold a TCP stream of numbered lines while the body runs."""
    result = Traffic(lab, (one, other))
    pings = [ping(lab, one, other), ping(lab, other, one)]
    stream = lab.machine(one.node).start(
        [*FAST_PYTHON, str(PROBE), "stream", other.address, str(port)], netns=one.netns
    )
    try:
        begun(stream)
        result.go_on(20)
        yield result
        # What became of the last pings of the body, later ones tell.
        result.go_on(20)
    finally:
        for running in pings:
            running.send_signal(signal.SIGINT)
        stream.send_signal(signal.SIGTERM)
        *_, output = [finish(running) for running in [*pings, stream]]
    for source, target, mark in (one, other, result.marks[0]), (other, one, result.marks[1]):
        count(result, source, target, lab.machine(source.node).path(LOG).read_text(), mark)
    report = json.loads(output.strip().splitlines()[-1] if output.strip() else "{}")
    result.lines.append(f"TCP stream {one.name} -> {other.name}: {json.dumps(report)}")
    result.stream_error = report.get("error", "the stream reported nothing")
    if report.get("sent", 0) - report.get("echoed", 0) > 1:
        result.stream_error = result.stream_error or "lines are missing"


def begun(stream: subprocess.Popen[bytes]) -> None:
    """Wait until the stream's first line is back: what is done next meets a connection that stands.

    Raises CheckFailed with what the stream said instead.
    """
    assert stream.stdout is not None
    ready, _, _ = select.select([stream.stdout], [], [], proc.PATIENCE)
    said = stream.stdout.readline().decode(errors="replace").strip() if ready else "nothing"
    if said != BEGUN:
        raise CheckFailed(f"the TCP stream did not begin: {said}")


def ping(lab: Lab, source: Pod, target: Pod) -> subprocess.Popen[bytes]:
    """100 a second until SIGINT, into a file (a pipe would fill and stop it)."""
    machine = lab.machine(source.node)
    machine.path(LOG).write_text("")
    command = ["ping", "-n", "-i", INTERVAL, target.address]
    return machine.start(command, netns=source.netns, output=LOG)


def finish(running: subprocess.Popen[bytes]) -> str:
    """All output of a program that was asked to end."""
    try:
        output, _ = running.communicate(timeout=proc.PATIENCE)
    except subprocess.TimeoutExpired:
        running.kill()
        output, _ = running.communicate()
    return (output or b"").decode(errors="replace")


def lost(text: str, after: int = 0) -> tuple[int, int]:
    """(sent, lost) of ping's output; `lost` counts those after the ping `after`. Pure.

    Those after the last one that was answered were under way at SIGINT: they are not lost.
    """
    summary = _SUMMARY.search(text)
    if not summary:
        raise CheckFailed(f"ping printed no summary: {text[-400:]}")
    sent = int(summary.group(1))
    answered = {int(number) for number in _ANSWER.findall(text)}
    return sent, len(set(range(after + 1, max(answered, default=sent))) - answered)


def count(result: Traffic, source: Pod, target: Pod, text: str, mark: int) -> None:
    """Add one ping's figures; `mark`: its last answer at `settled`."""
    sent, missing = lost(text)
    result.sent += sent
    result.lost += missing
    result.lost_after += lost(text, mark)[1]
    result.lines.append(f"ping {source.name} -> {target.name}: {sent} sent, {missing} lost")
