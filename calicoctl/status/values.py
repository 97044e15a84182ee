"""The state of a cluster as plain values, worst first.

`judge.judged` makes a `ClusterStatus` of `facts.Facts`. Tested in
`tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

LIVE, REPORT, NOTHING = "live", "report", "datastore"
"""Where the state of a node comes from: asked just now, a CalicoNodeStatus, or neither."""

UP, DOWN, UNKNOWN = "up", "down", "unknown"
"""The state of a session. `unknown`: no node told."""
STATE_WORDS = {UP: "up", DOWN: "down", UNKNOWN: "not known"}
"""How a state is said to people."""


class Grade(IntEnum):
    """How bad it is, in order. `UNKNOWN`: nothing says that it is fine."""

    FINE = 0
    UNKNOWN = 1
    WARNING = 2
    BAD = 3

    @property
    def word(self) -> str:
        """The word in tables and documents."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Session:
    """One BGP session as one of its ends tells it.

    `kind`: `node-to-node mesh`, `global` or `node specific`. `since`: RFC 3339. `received`, `sent`,
    `refused`: paths, None where the source does not count them. `cause`, `seen`, `fix`: why it is
    down, where that is known.
    """

    node: str
    address: str
    state: str
    kind: str = ""
    peer: str = ""
    info: str = ""
    since: str = ""
    asn: int | None = None
    received: int | None = None
    sent: int | None = None
    refused: int | None = None
    cause: str = ""
    seen: str = ""
    fix: str = ""
    leaving: bool = False

    @property
    def why(self) -> str:
        """Why it is not up, in one line; empty for one that is."""
        if self.state == UP:
            return ""
        if self.cause:
            return ": ".join(
                filter(None, (self.cause, "; ".join(filter(None, (self.seen, self.fix)))))
            )
        return self.info


@dataclass(frozen=True, slots=True)
class Condition:
    """What a process of a node says that an operator should know."""

    process: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node. `source` is `LIVE`, `REPORT` or `NOTHING`; `seen` is when it was told (RFC 3339).

    `unanswered`: why the node did not answer a question that it was asked; empty otherwise.
    """

    name: str
    grade: Grade
    why: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    version: str = ""
    source: str = NOTHING
    seen: str = ""
    draining: bool = False
    unanswered: str = ""
    sessions: tuple[Session, ...] = ()
    conditions: tuple[Condition, ...] = ()
    endpoints: int | None = None
    endpoints_in_force: int | None = None

    @property
    def sessions_up(self) -> int:
        """How many of its sessions are up."""
        return sum(one.state == UP for one in self.sessions)


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool; counts are addresses. `free` is neither in use nor reserved."""

    name: str
    cidr: str
    grade: Grade
    why: str
    capacity: int
    in_use: int
    free: int
    blocks: int
    disabled: bool = False

    @property
    def share(self) -> float:
        """The part that is in use, from 0 to 1."""
        return self.in_use / self.capacity if self.capacity else 0.0


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster, its nodes and pools worst first.

    `missing`: what is not known, and how to get it. `unreadable`: objects that cannot be read.
    """

    nodes: tuple[NodeState, ...]
    pools: tuple[PoolState, ...]
    version: str = ""
    kind: str = ""
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def grade(self) -> Grade:
        """The worst of all."""
        grades = [node.grade for node in self.nodes] + [pool.grade for pool in self.pools]
        if self.unreadable:
            grades.append(Grade.WARNING)
        return max(grades, default=Grade.UNKNOWN)

    @property
    def sessions(self) -> Counter[str]:
        """How many sessions are in which state, as the nodes tell them: each end counts."""
        return Counter(one.state for node in self.nodes for one in node.sessions)

    @property
    def unanswered(self) -> list[tuple[str, str]]:
        """(node, why) of the nodes that were asked and did not answer."""
        return [(node.name, node.unanswered) for node in self.nodes if node.unanswered]
