"""The order of the checks, and what they share: the lab, the pods, the patience."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from lab import agents, cluster, proc
from lab.cluster import Lab
from lab.demo.transcript import CheckFailed, Transcript
from lab.errors import LabError
from lab.pods import Pod

Write = Callable[[str], None]


@dataclass
class Story:
    """The state of the demo. `patience`: seconds for work that an idle machine does in a few."""

    lab_name: str
    write: Write
    patience: float = 120.0
    pods: list[Pod] = field(default_factory=list)
    _lab: Lab | None = None

    @property
    def lab(self) -> Lab:
        """The lab; CheckFailed when it did not come up."""
        if self._lab is None:
            raise CheckFailed("the lab is not up (see the first check)")
        return self._lab

    @lab.setter
    def lab(self, lab: Lab) -> None:
        self._lab = lab

    @property
    def began(self) -> bool:
        """Whether this story made a lab."""
        return self._lab is not None

    def pod(self, name: str) -> Pod:
        """A pod of the story by name; CheckFailed when it was not made."""
        for pod in self.pods:
            if pod.name == name:
                return pod
        raise CheckFailed(f"pod {name} is not there (see the check of the pods' wiring)")

    def all_pods(self) -> list[Pod]:
        """The six pods; CheckFailed when one is missing."""
        return [self.pod(name) for name in POD_NAMES]

    def wait(
        self, condition: Callable[[], bool], what: str, *, timeout: float | None = None
    ) -> float:
        """Poll a condition; seconds it took, or CheckFailed naming `what`."""
        limit = self.patience if timeout is None else timeout
        try:
            return proc.wait_until(condition, what, timeout=limit, every=0.1)
        except LabError as error:
            raise CheckFailed(str(error)) from error


SAID_LINES = 60
POD_NAMES = ("web-1", "web-2", "web-3", "db-1", "db-2", "db-3")
Check = Callable[[Story, Transcript], None]


@dataclass(frozen=True)
class Outcome:
    """One entry of the report."""

    name: str
    ok: bool
    detail: str
    seconds: float


def perform(story: Story, name: str, check: Check) -> Outcome:
    """Run one check; a failure is an outcome, not an exception."""
    transcript = Transcript(story.write)
    begun = time.monotonic()
    try:
        check(story, transcript)
    except (CheckFailed, LabError) as error:
        transcript.note(f"FAILED: {error}")
        return Outcome(name, False, "\n".join(transcript.lines), took(begun))
    except Exception:  # noqa: BLE001 - an outcome, told with its traceback
        transcript.note(f"FAILED: {traceback.format_exc()}")
        return Outcome(name, False, "\n".join(transcript.lines), took(begun))
    return Outcome(name, True, "\n".join(transcript.lines), took(begun))


def what_the_nodes_said(story: Story) -> str:
    """The end of each node's log, from info up, to explain a failure; empty without a lab."""
    if not story.began:
        return ""
    said = []
    for machine in story.lab.nodes:
        with contextlib.suppress(OSError, LabError):
            lines = machine.path(str(agents.LOG)).read_text(errors="replace").splitlines()
            kept = [line for line in lines if " DEBUG " not in line][-SAID_LINES:]
            said.append("\n".join([f"{machine.name}$ tail {agents.LOG}", *kept]))
    return "\n".join(said)


def took(begun: float) -> float:
    """Seconds since `begun`."""
    return round(time.monotonic() - begun, 2)


def end(story: Story) -> None:
    """Take the story's own lab down, or what is left of it (never one that was there before)."""
    if story.began:
        cluster.down(story.lab_name)
