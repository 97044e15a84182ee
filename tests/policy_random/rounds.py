"""Worlds in force on real nodes, and the packets that get through: what every site has in common.

Each end of packets holds an agent (agent.py) for as long as the site lives. A world is applied by
differences. Its last object is a fence that lets everything pass and has a new name each time: a
node that has its chain has seen at least one feed whole; what the other feeds still hold back is
settled by probing again, for a while, what does not match yet (`late`). Between rounds connection
tracking is emptied, for what is established passes whatever the policy says.
"""

from __future__ import annotations

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.policy_random.generator import API, RAW_PROTOCOL, TCP_PORTS, UDP_PORTS, Pod, World
from tests.policy_random.oracle import Flow
from tests.support.patience import patient

AGENT = Path(__file__).with_name("agent.py")
SERVED = (
    *(f"tcp:{port}" for port in TCP_PORTS),
    *(f"udp:{port}" for port in UDP_PORTS),
    f"raw:{RAW_PROTOCOL}",
)
NEGATIVE_SECONDS = 0.3
PATIENCE = 2.0
FENCE_SECONDS = 20.0
SETTLE_SECONDS = 8.0
DIFFED = (
    "Tier",
    "NetworkPolicy",
    "GlobalNetworkPolicy",
    "StagedNetworkPolicy",
    "StagedGlobalNetworkPolicy",
    "NetworkSet",
    "GlobalNetworkSet",
    "HostEndpoint",
)
Document = dict[str, Any]


@dataclass
class Agent:
    """The process in one pod."""

    pod: Pod
    process: subprocess.Popen[str]

    def read(self) -> Any:
        """One line of its output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the agent of {self.pod.title} ended: {self.process.poll()}")
        return json.loads(line)

    def round(self, probes: list[list[Any]], expected: list[int]) -> set[int]:
        """Try packets; the indexes of those that were answered."""
        order = {
            "probes": probes,
            "expected": expected,
            "seconds": NEGATIVE_SECONDS,
            "patience": PATIENCE,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return set(self.read())

    def end(self) -> None:
        """The agent ends with its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


@dataclass
class Rounds(ABC):
    """Nodes, and an agent at each end of packets.

    `late` counts verdicts that were right only at a later look: packets that were lost on a busy
    machine or came before the last of the changes ("lost"), or got through before it ("early").
    `stored` is what of the world stands in the datastore, the fence included.
    """

    agents: dict[str, Agent]
    applied: list[Document] = field(default_factory=list, kw_only=True)
    stored: list[Document] = field(default_factory=list, kw_only=True)
    fence: int = field(default=0, kw_only=True)
    late: Counter[str] = field(default_factory=Counter, kw_only=True)

    @property
    def pods(self) -> list[Pod]:
        """All ends."""
        return [agent.pod for agent in self.agents.values()]

    @abstractmethod
    def calicoctl(self, word: str, documents: Sequence[Document]) -> None:
        """`calicoctl apply|delete`."""

    @abstractmethod
    def documents(self, world: World) -> list[Document]:
        """What of a world is stored."""

    @abstractmethod
    def rules(self) -> Mapping[str, str]:
        """All rules of each node, of whichever back end; the chains' names are the same in both."""

    @abstractmethod
    def forget_connections(self) -> None:
        """Empty connection tracking."""

    def become(self, world: World) -> None:
        """Apply a world by differences; returns when every node has seen the fence."""
        kept = {identity(document) for document in world.documents}
        gone = [d for d in self.applied if d["kind"] != "Tier" and identity(d) not in kept]
        self.calicoctl("delete", [d for d in gone if d["kind"] in DIFFED])
        self.stored = [*self.documents(world), *self.next_fence()]
        self.calicoctl("apply", self.stored)
        self.applied = world.documents
        chain = f"cali-pi-gnp/fence-{self.fence} "
        deadline = time.monotonic() + patient(FENCE_SECONDS)
        while waiting := [node for node, text in self.rules().items() if chain not in text]:
            if time.monotonic() > deadline:
                raise AssertionError(f"no chain {chain} on {waiting}")

    def next_fence(self) -> list[Document]:
        """A first tier that passes everything on, and its policy under a new name."""
        old, self.fence = self.fence, self.fence + 1
        if old:
            self.calicoctl("delete", [fence_policy(old)])
        tier: Document = {"order": -1000000, "defaultAction": "Pass"}
        fence = {"apiVersion": API, "kind": "Tier", "metadata": {"name": "fence"}, "spec": tier}
        return [fence, fence_policy(self.fence)]

    def measure(self, flows: Iterable[Flow], expected: set[Flow]) -> set[Flow]:
        """The flows that get through, all pods trying at once.

        `expected` only says for which answers it pays to wait longer.
        """
        self.forget_connections()
        by_source: dict[str, list[Flow]] = {}
        for flow in flows:
            by_source.setdefault(flow.source, []).append(flow)

        def one(source: str) -> set[Flow]:
            mine = by_source[source]
            probes = [self.probe(index, flow) for index, flow in enumerate(mine)]
            wanted = [index for index, flow in enumerate(mine) if flow in expected]
            return {mine[index] for index in self.agents[source].round(probes, wanted)}

        with ThreadPoolExecutor(max_workers=len(self.agents)) as pool:
            return set().union(*pool.map(one, by_source))

    def probe(self, index: int, flow: Flow) -> list[Any]:
        """A flow as the agent reads it."""
        return [
            index,
            flow.version,
            flow.protocol,
            self.address(flow),
            flow.source_port,
            flow.destination_port,
            flow.icmp_type,
            flow.icmp_code,
        ]

    def address(self, flow: Flow) -> str:
        """Where a flow is sent."""
        pod = self.agents[flow.destination].pod
        return next(a for a in pod.addresses if (":" in a) == (flow.version == 6))

    def disagreeing(
        self, flows: list[Flow], expected: set[Flow], *, later: bool = True
    ) -> list[Flow]:
        """Those flows that real packets see otherwise than expected, `later`: at later looks, too.

        Without, of a world that has come into force already.
        """
        # Of a protocol without ports both directions are one connection to the kernel: the one
        # would let the other pass. So these go in a round of their own.
        back = {f for f in flows if f.protocol == RAW_PROTOCOL and f.source > f.destination}
        wrong: set[Flow] = set()
        for part in ([flow for flow in flows if flow not in back], list(back)):
            wanted = expected.intersection(part)
            wrong |= self.measure(part, wanted) ^ wanted
        deadline = time.monotonic() + patient(SETTLE_SECONDS)
        while wrong and later and time.monotonic() < deadline:
            before = wrong
            wrong = self.measure(before, before & expected) ^ (before & expected)
            self.late.update("lost" if flow in expected else "early" for flow in before - wrong)
        return sorted(wrong, key=str)


def identity(document: Document) -> tuple[str, str, str]:
    """What a document is about."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def fence_policy(number: int) -> Document:
    """Selects everybody and decides nothing."""
    # No rules: its tier passes on by default, so that no action's bug can move the fence.
    spec = {"tier": "fence", "selector": "all()", "types": ["Ingress", "Egress"]}
    metadata = {"name": f"fence-{number}"}
    return {"apiVersion": API, "kind": "GlobalNetworkPolicy", "metadata": metadata, "spec": spec}
