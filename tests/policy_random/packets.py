"""Worlds on real nodes: twelve pods by the real CNI, documents by calicoctl, verdicts by packets.

Every pod holds an agent (agent.py) for as long as the lab lives. A world is applied by differences.
Its last object is a fence that lets everything pass and has a new name each time: a node that has
its chain has seen at least one feed whole; what the other feeds still hold back is settled by
probing again, for a while, what does not match yet (`late`). Between rounds connection tracking is
emptied, for what is established passes whatever the policy says.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab import cluster
from lab import pods as lab_pods
from lab.cluster import Lab
from lab.machine import FAST_PYTHON, Machine
from libcalico import names, paths
from tests.policy_random.generator import (
    API,
    RAW_PROTOCOL,
    TCP_PORTS,
    UDP_PORTS,
    Pod,
    World,
    pod_places,
)
from tests.policy_random.oracle import Flow, Oracle
from tests.support.patience import HANG, patient

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
POOLS = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: four}
spec: {cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd65::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never}
"""
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
class PacketLab:
    """The lab with its pods.

    `late` counts verdicts that were right only at a later look: packets that were lost on a busy
    machine or came before the last of the changes ("lost"), or got through before it ("early").
    `stored` is what of the world stands in the datastore, the fence included.
    """

    lab: Lab
    agents: dict[str, Agent]
    endpoints: dict[str, Document]
    applied: list[Document] = field(default_factory=list)
    stored: list[Document] = field(default_factory=list)
    fence: int = 0
    late: Counter[str] = field(default_factory=Counter)

    @property
    def pods(self) -> list[Pod]:
        """All pods."""
        return [agent.pod for agent in self.agents.values()]

    def calicoctl(self, word: str, documents: Sequence[Document]) -> None:
        """`calicoctl apply|delete` on the first node."""
        if documents:
            text = yaml.safe_dump_all(documents, sort_keys=False)
            command = ["calicoctl", word, "-f", "-"]
            self.lab.nodes[0].run(command, stdin=text.encode(), timeout=HANG)

    def become(self, world: World) -> None:
        """Apply a world by differences; returns when every node has seen the fence."""
        kept = {identity(document) for document in world.documents}
        gone = [d for d in self.applied if d["kind"] != "Tier" and identity(d) not in kept]
        self.calicoctl("delete", [d for d in gone if d["kind"] in DIFFED])
        documents = [elsewhere(d) for d in world.documents if d["kind"] != "WorkloadEndpoint"]
        documents += [self.endpoint(d) for d in world.of("WorkloadEndpoint")]
        self.stored = [*documents, *self.next_fence()]
        self.calicoctl("apply", self.stored)
        self.applied = world.documents
        chain = f"cali-pi-gnp/fence-{self.fence} "
        deadline = time.monotonic() + patient(FENCE_SECONDS)
        waiting = self.lab.nodes
        while waiting:
            waiting = [node for node in waiting if chain not in rules_of(node)]
            if time.monotonic() > deadline:
                raise AssertionError(f"no chain {chain} on {[node.name for node in waiting]}")

    def endpoint(self, wanted: Document) -> Document:
        """The pod's real endpoint with what the world changes of it."""
        title = f"{wanted['metadata']['namespace']}/{wanted['spec']['pod']}"
        real = self.endpoints[title]
        new = {k: wanted["spec"].get(k) for k in ("profiles", "ports", "serviceAccountName")}
        spec = {k: v for k, v in {**real["spec"], **new}.items() if v}
        metadata = {"name": real["metadata"]["name"], "namespace": real["metadata"]["namespace"]}
        metadata["labels"] = wanted["metadata"]["labels"]
        return {"apiVersion": API, "kind": "WorkloadEndpoint", "metadata": metadata, "spec": spec}

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
        for node in self.lab.nodes:
            node.run(["conntrack", "-F"])
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
        pod = self.agents[flow.destination].pod
        address = next(a for a in pod.addresses if (":" in a) == (flow.version == 6))
        return [
            index,
            flow.version,
            flow.protocol,
            address,
            flow.source_port,
            flow.destination_port,
            flow.icmp_type,
            flow.icmp_code,
        ]

    def differences(self, world: World, flows: list[Flow]) -> list[tuple[Flow, bool]]:
        """(flow, whether the oracle allows it) of every flow that real packets see otherwise."""
        oracle = Oracle.from_yaml(world.yaml)
        expected = {flow for flow in flows if oracle.allows(flow)}
        return [(flow, flow in expected) for flow in self.disagreeing(flows, expected)]

    def disagreeing(self, flows: list[Flow], expected: set[Flow]) -> list[Flow]:
        """Those flows that real packets see otherwise than expected, also at later looks."""
        # Of a protocol without ports both directions are one connection to the kernel: the one
        # would let the other pass. So these go in a round of their own.
        back = {f for f in flows if f.protocol == RAW_PROTOCOL and f.source > f.destination}
        wrong: set[Flow] = set()
        for part in ([flow for flow in flows if flow not in back], list(back)):
            wanted = expected.intersection(part)
            wrong |= self.measure(part, wanted) ^ wanted
        deadline = time.monotonic() + patient(SETTLE_SECONDS)
        while wrong and time.monotonic() < deadline:
            before = wrong
            wrong = self.measure(before, before & expected) ^ (before & expected)
            self.late.update("lost" if flow in expected else "early" for flow in before - wrong)
        return sorted(wrong, key=str)


def elsewhere(document: Document) -> Document:
    """A host endpoint as another node's: here it would close the lab's own interfaces."""
    if document["kind"] != "HostEndpoint":
        return document
    return {**document, "spec": {**document["spec"], "node": "elsewhere"}}


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


def both_families(lab: Lab) -> None:
    """Pools of both families, and a plugin configuration that asks for both."""
    lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOLS.encode())
    for node in lab.nodes:
        file = node.path(paths.CNI_NET / "10-calico.conflist")
        config = json.loads(file.read_text())
        config["plugins"][0]["ipam"].update(assign_ipv4="true", assign_ipv6="true")
        file.write_text(json.dumps(config))


def start_agent(lab: Lab, made: lab_pods.Pod) -> Agent:
    """The agent of a pod, ready."""
    machine = lab.machine(made.node)
    command = [*FAST_PYTHON, str(AGENT), *made.addresses, *SERVED]
    process = subprocess.Popen(
        machine.command(command, netns=made.netns),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=machine.environment(),
        text=True,
        start_new_session=True,
    )
    pod = Pod(made.namespace, made.name, made.node, tuple(made.addresses))
    return Agent(pod, process)


def rules_of(node: Machine) -> str:
    """All rules, of whichever back end; the chains' names are the same in both."""
    # A program fails when a set goes between its two looks; then it looks again.
    programs = (["iptables-save"], ["nft", "list", "table", "ip", "calico"])
    return "".join(node.run(program, check=False).stdout for program in programs)


@contextmanager
def packet_lab(
    name: str, nodes: int = 2, environment: dict[str, str] | None = None
) -> Iterator[PacketLab]:
    """A lab with twelve pods and their agents, taken down at the end."""
    settings = {"IP6": "autodetect", **(environment or {})}
    lab = cluster.up(name, nodes=nodes, topology="flat", environment=settings)
    agents: dict[str, Agent] = {}
    try:
        both_families(lab)
        endpoints: dict[str, Document] = {}
        for namespace, pod_name, node in pod_places(nodes):
            made = lab_pods.add(lab, pod_name, node, namespace=namespace)
            agents[made.title] = start_agent(lab, made)
            wep = names.workload_endpoint_name(node, "k8s", pod_name, "eth0")
            command = ["calicoctl", "get", "workloadendpoint", wep, "-n", namespace, "-o", "yaml"]
            endpoints[made.title] = yaml.safe_load(lab.nodes[0].run(command).stdout)
        for agent in agents.values():
            assert agent.read() == "ready"
        yield PacketLab(lab, agents, endpoints)
    finally:
        for agent in agents.values():
            agent.end()
        cluster.down(name)
