"""Reachability among the story's pods, by TCP and by UDP, probed from inside each pod.

An answer counts only when the server says that it saw the pod's own address. The expectation is a
predicate over (protocol, source, target), and every one of the 60 answers must agree with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

from lab import proc
from lab.demo.story import Story
from lab.demo.transcript import CheckFailed, Transcript
from lab.errors import LabError
from lab.machine import FAST_PYTHON, PROBE
from lab.pods import Pod

PORT = 8080
PROTOCOLS = ("tcp", "udp")
SILENCE, LONGEST = 0.3, 10.0
"""Seconds without an answer that count as none: few, and more where a busy machine needs them."""
Allowed = Callable[[str, Pod, Pod], bool]
Matrix = dict[tuple[str, str, str], bool]


def everything(_: str, __: Pod, ___: Pod) -> bool:
    """No policy: all open."""
    return True


def observe(story: Story, seconds: float = SILENCE) -> Matrix:
    """(protocol, source, target) -> whether the target answered, all probes at once."""
    everyone = story.all_pods()
    with ThreadPoolExecutor(max_workers=len(everyone)) as pool:
        answers = list(pool.map(lambda pod: ask(story, pod, everyone, seconds), everyone))
    return {
        (protocol, source.name, target.name): answer[protocol][target.address] == source.address
        for protocol in PROTOCOLS
        for source, answer in zip(everyone, answers, strict=True)
        for target in everyone
        if target is not source
    }


def ask(
    story: Story, source: Pod, everyone: list[Pod], seconds: float
) -> dict[str, dict[str, str]]:
    """protocol -> address -> what the server there saw as the pod's address, or `error: ...`."""
    others = [pod.address for pod in everyone if pod is not source]
    command = [*FAST_PYTHON, str(PROBE), "both", str(PORT), str(seconds), *others]
    done = story.lab.machine(source.node).run(command, netns=source.netns)
    answers: dict[str, dict[str, str]] = json.loads(done.stdout)
    return answers


def expected(story: Story, allowed: Allowed) -> Matrix:
    """The matrix that a predicate describes."""
    return {
        (protocol, source.name, target.name): allowed(protocol, source, target)
        for protocol in PROTOCOLS
        for source, target in permutations(story.all_pods(), 2)
    }


def differences(desired: Matrix, observed: Matrix) -> list[str]:
    """One sentence per wrong answer. Pure."""
    return [
        f"{protocol} {source} -> {target} {'is closed' if desired[key] else 'is OPEN'}"
        for key in desired
        for protocol, source, target in [key]
        if desired[key] is not observed[key]
    ]


def table(observed: Matrix) -> str:
    """Rows are sources, columns targets; T and U where TCP and UDP pass. Pure."""
    names = list(dict.fromkeys(source for _, source, _ in observed))
    lines = ["from \\ to  " + "".join(f"{name:8}" for name in names)]
    for source in names:
        cells = ""
        for target in names:
            marks = "".join(
                mark if observed.get((protocol, source, target)) else "."
                for protocol, mark in (("tcp", "T"), ("udp", "U"))
            )
            cells += f"{'-' if source == target else marks:8}"
        lines.append(f"{source:11}{cells}".rstrip())
    return "\n".join(lines)


def holds(story: Story, transcript: Transcript, allowed: Allowed, when: str) -> None:
    """The matrix becomes exactly this within the story's patience, and still is when seen again."""
    desired, begun = expected(story, allowed), time.monotonic()
    observed: Matrix = {}
    seconds = SILENCE

    def exact() -> bool:
        nonlocal seconds
        observed.update(observe(story, seconds))
        seconds = min(1.25 * seconds, LONGEST)
        return not differences(desired, observed)

    try:
        proc.wait_until(exact, f"{when}: the expected matrix", timeout=story.patience)
        took = time.monotonic() - begun
        observed.update(observe(story, seconds))
        wrong = differences(desired, observed)
        if wrong and not any("OPEN" in one for one in wrong):
            # Only silence: this machine may be slower by now. An open pair stays a failure.
            observed.update(observe(story, LONGEST))
            wrong = differences(desired, observed)
    except LabError as error:
        wrong = differences(desired, observed)
        transcript.note(table(observed))
        raise CheckFailed(f"{error}: {', '.join(wrong)}") from error
    passing = sum(observed.values())
    transcript.note(f"{when}: {passing} of {len(observed)} probes pass (seen after {took:.1f} s)")
    transcript.note(table(observed))
    if wrong:
        raise CheckFailed(f"{when}: seen again, these differ: {', '.join(wrong)}")
