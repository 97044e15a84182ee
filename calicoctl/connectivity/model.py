"""Places, probes and results of a connectivity test, as plain values.

Tested in `tests/calicoctl/test_connectivity_judge.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

POD, HOST = "pod", "node"
"""Where a probe runs: in a pod, or in the network of a node."""

PODS, OTHER_PORT, NODES, SERVICE, OUTSIDE, SPEED = (
    "pod", "other port", "node", "service", "outside", "throughput",
)  # fmt: skip
"""What is asked. `OTHER_PORT`: the second port of the same pods."""

OPEN, DENIED, ALLOWED = "open", "all denied", "one port allowed"
"""The phases: without policies of ours, with a deny, with a deny and one port allowed."""

REACHED = frozenset({"answer", "refused"})
"""Outcomes of `connect` probes that show that the way there and back works."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a probe runs: on which node, in which pod (`namespace` and `pod` empty: the node)."""

    node: str
    pod: str = ""
    namespace: str = ""
    address: str = ""

    @property
    def kind(self) -> str:
        """`POD` or `HOST`."""
        return POD if self.pod else HOST

    @property
    def title(self) -> str:
        """The place in tables."""
        return f"{self.namespace}/{self.pod}" if self.pod else self.node


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked: `node` is where it lies, empty where that means nothing."""

    kind: str
    title: str
    host: str
    port: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One question. `open`: whether an answer is right."""

    phase: str
    source: Place
    target: Target
    open: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a probe.

    `outcome`: `answer`, `refused`, `silent`, `unreachable`, `large-out` and `large-in` (small
    packets pass, large ones of that direction do not), or `not run` (`error` says why). Times are
    milliseconds, `bits` are bits a second; None where nothing was measured.
    """

    probe: Probe
    outcome: str
    error: str = ""
    name: str = ""
    latency_ms: float | None = None
    bits: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        if self.probe.target.kind in (NODES, OUTSIDE):
            return self.outcome in REACHED
        return self.outcome == "answer"

    @property
    def right(self) -> bool:
        """Whether it is as it should be."""
        if self.outcome == "not run":
            return False
        return self.reached == self.probe.open


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in words that name it. `what`: a short name of the kind of fault."""

    what: str
    where: str
    sentence: str
