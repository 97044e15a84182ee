"""Worlds on real nodes: twelve pods by the real CNI, documents by calicoctl, verdicts by packets.

How a world comes into force and how packets are tried: rounds.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import yaml

from lab import cluster
from lab import pods as lab_pods
from lab.cluster import Lab
from lab.machine import FAST_PYTHON, Machine
from libcalico.process import paths
from tests.policy_random.generator import API, Pod, World, pod_places
from tests.policy_random.oracle import Flow, Oracle
from tests.policy_random.rounds import AGENT, SERVED, Agent, Document, Rounds
from tests.support.patience import HANG

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


@dataclass
class PacketLab(Rounds):
    """The lab with its pods."""

    lab: Lab
    endpoints: dict[str, Document]

    def calicoctl(self, word: str, documents: Sequence[Document]) -> None:
        """On the first node."""
        if documents:
            text = yaml.safe_dump_all(documents, sort_keys=False)
            command = ["calicoctl", word, "-f", "-"]
            self.lab.nodes[0].run(command, stdin=text.encode(), timeout=HANG)

    def documents(self, world: World) -> list[Document]:
        """All, but a host endpoint is another node's and a pod's endpoint has the pod's facts."""
        found = [elsewhere(d) for d in world.documents if d["kind"] != "WorkloadEndpoint"]
        return found + [self.endpoint(d) for d in world.of("WorkloadEndpoint")]

    def rules(self) -> dict[str, str]:
        """Of every node."""
        return {node.name: rules_of(node) for node in self.lab.nodes}

    def forget_connections(self) -> None:
        """On every node."""
        for node in self.lab.nodes:
            node.run(["conntrack", "-F"])

    def endpoint(self, wanted: Document) -> Document:
        """The pod's real endpoint with what the world changes of it."""
        title = f"{wanted['metadata']['namespace']}/{wanted['spec']['pod']}"
        real = self.endpoints[title]
        new = {k: wanted["spec"].get(k) for k in ("profiles", "ports", "serviceAccountName")}
        spec = {k: v for k, v in {**real["spec"], **new}.items() if v}
        metadata = {"name": real["metadata"]["name"], "namespace": real["metadata"]["namespace"]}
        metadata["labels"] = wanted["metadata"]["labels"]
        return {"apiVersion": API, "kind": "WorkloadEndpoint", "metadata": metadata, "spec": spec}

    def differences(
        self, world: World, flows: list[Flow], *, later: bool = True
    ) -> list[tuple[Flow, bool]]:
        """(flow, whether the oracle allows it) of every flow that real packets see otherwise.

        `later`: as `disagreeing` has it.
        """
        oracle = Oracle.from_yaml(world.yaml)
        expected = {flow for flow in flows if oracle.allows(flow)}
        return [(flow, flow in expected) for flow in self.disagreeing(flows, expected, later=later)]


def elsewhere(document: Document) -> Document:
    """A host endpoint as another node's: here it would close the lab's own interfaces."""
    if document["kind"] != "HostEndpoint":
        return document
    return {**document, "spec": {**document["spec"], "node": "elsewhere"}}


def both_families(lab: Lab) -> None:
    """Pools of both families, and a plugin configuration that asks for both."""
    lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOLS.encode())
    for node in lab.nodes:
        file = node.path(paths.CNI_NET / "10-calico.conflist")
        config = json.loads(file.read_text())
        config["plugins"][0]["ipam"].update(assign_ipv4="true", assign_ipv6="true")
        file.write_text(json.dumps(config))


def endpoints_of(lab: Lab) -> dict[str, Document]:
    """The endpoint of each pod, by namespace/name."""
    command = ["calicoctl", "get", "workloadendpoints", "--all-namespaces", "-o", "yaml"]
    found = yaml.safe_load(lab.nodes[0].run(command, timeout=HANG).stdout)["items"]
    return {f"{each['metadata']['namespace']}/{each['spec']['pod']}": each for each in found}


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
        for namespace, pod_name, node in pod_places(nodes):
            made = lab_pods.add(lab, pod_name, node, namespace=namespace)
            agents[made.title] = start_agent(lab, made)
        for agent in agents.values():
            assert agent.read() == "ready"
        yield PacketLab(agents, lab, endpoints_of(lab))
    finally:
        for agent in agents.values():
            agent.end()
        cluster.down(name)
