"""Nine pods on two nodes, changed through the datastore and measured with packets.

             node1                            node2
    x/a   x/c   y/b   z/a   z/c      x/b   y/a   y/c   z/b        fence/left | fence/right

Pods come by the real CNI executable with labels and named ports; the lab makes their namespaces.
Policies are Kubernetes YAML, converted and given to `calicoctl apply` on a node (by one calicoctl
that stays, ctl.py). Nobody here writes to etcd. Which back end the nodes' felix uses is changed as
an operator would, by `nftablesMode` of the FelixConfigurations, while the pods run.
A running pod's labels change as the pod controller of a cluster changes them: its WorkloadEndpoint
is read, given the pod's labels and applied.

Two more pods are the fence. Their policy is applied after every change and swaps their open port;
once both let packets in at the new port, every felix has worked through all that was applied
before. So a matrix that a change must leave as it is, is measured after the change, not before.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from lab import cluster, namespaces
from lab import pods as lab_pods
from lab.cluster import Lab
from lab.machine import Machine
from lab.pods import Pod
from libcalico import names
from libcalico.conversion import POLICY_PREFIX, NodeAddresses, convert
from libcalico.model.codec import shown_value
from tests.felix.in_kernel import NFTABLES
from tests.netpol import pods
from tests.netpol.case import Apply, Case, Expect, policy
from tests.netpol.ctl import Ctl
from tests.netpol.matrix import Pair, differences, expectation, table
from tests.netpol.pods import Prober
from tests.support.patience import patient

PODS = tuple(f"{namespace}/{pod}" for namespace in "xyz" for pod in "abc")
FENCE = ("fence/left", "fence/right")
NODES = ("node1", "node2")
POLICY = "NetworkPolicy"
OWN_LABELS = "projectcalico.org/"
FENCE_SECONDS = 10.0
MATRIX_SECONDS = 5.0
LEAST_LOOKS = 5
CHANGE_OVER_SECONDS = 30.0
OPEN_TRIES = 4
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never, natOutgoing: true}
"""
Document = dict[str, Any]


def documents(text: str) -> list[Document]:
    """The objects of a YAML text."""
    return [document for document in yaml.safe_load_all(text) if document]


def large(address: str) -> str:
    """The /4 around an address."""
    return str(ipaddress.ip_network(f"{address}/4", strict=False))


@dataclass
class World:
    """The lab with its pods, and what the running case has changed."""

    lab: Lab
    ctl: Ctl
    probers: dict[str, Prober]
    places: dict[str, Pod]
    said: list[str] = field(default_factory=list)
    backend: str = "nft"
    _changed: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    _fence: int = 80

    def run(self, case: Case) -> None:
        """Play a case; AssertionError with a readable table when a matrix is not as expected."""
        for step in case.steps:
            if isinstance(step, Expect):
                self.expect(step)
            elif isinstance(step, Apply):
                self.apply(documents(self.filled(step.text)))
            else:
                self.delete(documents(self.filled(step.text)))

    def filled(self, text: str) -> str:
        """The text with pod addresses in the place of `${x/b}`."""
        for name, prober in self.probers.items():
            text = text.replace(f"${{{name}}}", prober.address)
        return text.replace("${large}", large(self.probers["x/a"].address))

    def apply(self, changed: Sequence[Document]) -> None:
        """Create or change objects, in order; returns when every node enforces them."""
        for document in changed:
            meta = document["metadata"]
            self._changed[document["kind"], meta.get("namespace", ""), meta["name"]] = document
        self.store(changed)
        self.fence()

    def delete(self, gone: Sequence[Document]) -> None:
        """Delete policies or namespaces; returns when every node has forgotten them."""
        self.drop(gone)
        for document in gone:
            meta = document["metadata"]
            self._changed.pop((document["kind"], meta.get("namespace", ""), meta["name"]), None)
        self.fence()

    def reset(self) -> None:
        """Undo what the case changed: policies go, namespaces and pods get their labels back."""
        changed = list(self._changed)
        self.drop([one for (kind, _, _), one in self._changed.items() if kind == POLICY])
        back = [namespace_yaml(name) for kind, _, name in changed if kind == "Namespace"]
        back += [pod_yaml(space, name) for kind, space, name in changed if kind == "Pod"]
        if back:
            self.apply(documents("---\n".join(back)))
        self._changed.clear()

    def store(self, changed: Sequence[Document]) -> None:
        """Create or change objects of Kubernetes; of a pod that runs its labels."""
        is_pod = [document["kind"] == "Pod" for document in changed]
        both = zip(changed, is_pod, strict=True)
        self.ctl.run("apply", [self.labelled(d) if pod else converted(d) for d, pod in both])

    def drop(self, gone: Sequence[Document]) -> None:
        """Delete policies or namespaces."""
        self.ctl.run("delete", [converted(document) for document in gone])

    def store_cluster(self, changed: Sequence[Document], nodes: Sequence[NodeAddresses]) -> None:
        """Create or change ClusterNetworkPolicies; `nodes` are those that their rules may mean."""
        self.ctl.run("apply", [converted(document, nodes) for document in changed])

    def drop_cluster(self, gone: Sequence[Document], nodes: Sequence[NodeAddresses]) -> None:
        """Delete ClusterNetworkPolicies."""
        self.ctl.run("delete", [converted(document, nodes) for document in gone])

    def have_namespace(self, name: str) -> None:
        """Make a namespace without labels; what was applied to one that is there stays."""
        namespaces.ensure(self.lab, name)

    def start(self, title: str, node: str) -> None:
        """A pod comes by CNI, and its process serves."""
        self.places[title] = self.add(title, node)
        self.probers[title] = start_prober(self.lab, self.places[title])
        pods.ready([self.probers[title]])

    def add(self, title: str, node: str) -> Pod:
        """A pod comes by CNI."""
        return add_pod(self.lab, title, node)

    def stop(self, title: str) -> None:
        """A pod goes by CNI."""
        self.probers.pop(title).end()
        lab_pods.remove(self.lab, self.places.pop(title))

    def labelled(self, pod: Document) -> str:
        """The pod's WorkloadEndpoint with the labels that the pod has now."""
        meta = pod["metadata"]
        node = self.places[f"{meta['namespace']}/{meta['name']}"].node
        name = names.workload_endpoint_name(node, "k8s", meta["name"], "eth0")
        where = ["-o", "yaml", "-n", meta["namespace"]]
        (endpoint,) = documents(self.ctl(["get", "workloadendpoint", name, *where]))
        own = {k: v for k, v in endpoint["metadata"]["labels"].items() if k.startswith(OWN_LABELS)}
        endpoint["metadata"]["labels"] = {**meta["labels"], **own}
        return yaml.safe_dump(endpoint)

    def fence(self) -> None:
        """Swap the fence's port, and wait for it: every node enforces what was changed before."""
        self._fence = 161 - self._fence
        self.ctl.run("apply", [converted(fence_policy(self._fence))])
        self.wait_for_fence()

    def wait_for_fence(self) -> None:
        """Until the fence's pods let packets in at its port."""
        both = [self.probers[name] for name in FENCE]
        deadline, timeout = time.monotonic() + patient(FENCE_SECONDS), 0.05
        while True:
            seen = pods.observe(both, f"tcp:{self._fence}", timeout=timeout)
            timeout = min(1.1 * timeout, 1.0)  # where an answer takes longer, it is waited for
            late = [target for (_, target), said in seen.items() if said != f"ok {target}"]
            if not late:
                return
            if time.monotonic() > deadline:
                nodes = {self.places[name].node for name in late}
                raise AssertionError(f"not enforced after {FENCE_SECONDS:g} s on {nodes}")

    def use(self, backend: str) -> None:
        """Change every node's felix over to iptables-nft or nftables, and wait for it."""
        if backend == self.backend:
            return
        spec = {"nftablesMode": "Enabled" if backend == NFTABLES else "Disabled"}
        patch = json.dumps({"spec": spec})
        # A node's own configuration says Auto from the start and wins over the default one.
        for node in NODES:
            self.ctl(["patch", "felixconfiguration", f"node.{node}", "-p", patch])
        deadline = time.monotonic() + patient(CHANGE_OVER_SECONDS)
        while not all(places_of_rules(node) == {backend} for node in self.lab.nodes):
            if time.monotonic() > deadline:
                raise AssertionError(f"not all rules are in {backend} alone")
            time.sleep(0.1)
        self.backend = backend
        self.fence()

    def expect(self, step: Expect) -> None:
        """The matrix becomes as expected within a deadline, and is the same at a second look."""
        expected = expectation(PODS, step.lines)
        begun = time.monotonic()
        looks = 0
        while True:
            seen = self.observe(step.door, expected, 1, patience(looks))
            looks += 1
            if not differences(expected, seen):
                break
            if looks >= LEAST_LOOKS and time.monotonic() - begun > patient(MATRIX_SECONDS):
                raise AssertionError(f"{step.door} is not as expected\n{table(expected, seen)}")
            time.sleep(0.05)
        self.said.append(f"{step.door}: right at look {looks}")

        def look(timeout: float) -> dict[str, dict[Pair, str]]:
            return {step.door: self.observe(step.door, expected, OPEN_TRIES, timeout)}

        for seen in not_lasting({step.door: expected}, look, patience(looks - 1)).values():
            raise AssertionError(f"{step.door} does not stay right\n{table(expected, seen)}")

    def observe(
        self, door: str, expected: dict[Pair, bool], tries: int, timeout: float
    ) -> dict[Pair, str]:
        """Measure. Only a pair that should be open gets several tries: a busy machine may lose a
        packet that passes, and never passes one that is dropped."""
        several = {pair: tries for pair, open_ in expected.items() if open_}
        return pods.observe([self.probers[name] for name in PODS], door, several, timeout)


def not_lasting(
    wanted: Mapping[str, Mapping[Pair, bool]],
    look: Callable[[float], Mapping[str, dict[Pair, str]]],
    timeout: float,
) -> dict[str, dict[Pair, str]]:
    """The doors that a second look shows otherwise than wanted, as they were seen.

    What got through though it may not is wrong at once; what did not come is asked for again, with
    more patience, since it may be late on a busy machine.
    """
    seen = look(timeout)
    wrong = {door: seen[door] for door in wanted if differences(wanted[door], seen[door])}
    leaked = [
        pair
        for door in wrong
        for pair in differences(wanted[door], seen[door])
        if not wanted[door][pair]
    ]
    if not wrong or leaked:
        return wrong
    seen = look(patience(LEAST_LOOKS))
    return {door: seen[door] for door in wanted if differences(wanted[door], seen[door])}


def patience(looks: int) -> float:
    """Seconds that a probe waits for its answer, after so many looks that were not right.

    From 0.3 to 2.4, where TCP has repeated a first packet: none may be called lost sooner.
    """
    return min(0.3 * 2.0**looks, 2.4)


def places_of_rules(node: Machine) -> set[str]:
    """The back ends in which a node's felix has rules about its pods."""
    shown = {
        "nft": node.run(["iptables-nft-save", "-t", "filter"], check=False).stdout,
        "legacy": node.run(["iptables-legacy-save", "-t", "filter"], check=False).stdout,
        NFTABLES: node.run(["nft", "list", "table", "ip", "calico"], check=False).stdout,
    }
    return {backend for backend, text in shown.items() if "cali-" in text}


def converted(document: Document, nodes: Sequence[NodeAddresses] = ()) -> str:
    """The Calico form of a Kubernetes object, all of it, as `calicoctl convert` names it."""
    conversion = convert(document, nodes)
    assert not conversion.dropped, conversion.dropped
    shown: Document = json.loads(shown_value(conversion.resource))
    shown["metadata"]["name"] = shown["metadata"]["name"].removeprefix(POLICY_PREFIX)
    return json.dumps(shown) + "\n"


def fence_policy(port: int) -> Document:
    """Lets packets in to the fence's pods on one port only."""
    spec = f"podSelector: {{}}\ningress:\n- ports: [{{port: {port}, protocol: TCP}}]"
    (document,) = documents(policy("fence", "fence", spec))
    return document


def namespace_yaml(name: str) -> str:
    """A namespace as it is before and after every case."""
    return f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"


def pod_yaml(namespace: str, name: str) -> str:
    """A pod as it is before and after every case; its ports have names, as in a manifest."""
    ports = "".join(
        f"    - {{name: serve-{door.partition(':')[2]}-{door.partition(':')[0]}, "
        f"containerPort: {door.partition(':')[2]}, protocol: {door.partition(':')[0].upper()}}}\n"
        for door in pods.SERVED
    )
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\n"
        f"  labels: {{pod: {name}}}\nspec:\n  containers:\n  - name: server\n    ports:\n{ports}"
    )


def add_pod(lab: Lab, name: str, node: str, uid: str = "") -> Pod:
    """What kubelet makes of a pod's YAML: labels and named ports go to the CNI call."""
    (document,) = documents(pod_yaml(*name.split("/")))
    meta, (container,) = document["metadata"], document["spec"]["containers"]
    declared = {
        port["name"]: f"{port['protocol'].lower()}:{port['containerPort']}"
        for port in container["ports"]
    }
    return lab_pods.add(
        lab,
        meta["name"],
        node,
        namespace=meta["namespace"],
        labels=meta["labels"],
        named_ports=declared,
        uid=uid,
    )


def start_prober(lab: Lab, pod: Pod) -> Prober:
    """The process in a pod; `pods.ready` tells when it serves."""
    machine = lab.machine(pod.node)
    command = machine.command([*pods.COMMAND, pod.title, *pods.SERVED], netns=pod.netns)
    return pods.start(command, machine.environment(), pod.title, pod.address)


@contextmanager
def world(lab_name: str) -> Iterator[World]:
    """A lab with everything in it, taken down at the end."""
    lab = cluster.up(lab_name, nodes=len(NODES), topology="flat")
    with living(lab) as ctl:
        ctl.run("apply", [POOL])
        with inhabited(lab, add_pod) as (probers, places):
            yield World(lab, ctl, probers, places)


@contextmanager
def living(lab: Lab) -> Iterator[Ctl]:
    """A calicoctl on the lab's first node; the lab is taken down at the end."""
    ctl = Ctl.start(lab.nodes[0])
    try:
        yield ctl
    finally:
        ctl.end()
        cluster.down(lab.name)


@contextmanager
def inhabited(
    lab: Lab, add: Callable[[Lab, str, str], Pod]
) -> Iterator[tuple[dict[str, Prober], dict[str, Pod]]]:
    """The pods, made by `add`, and the processes in them."""
    probers: dict[str, Prober] = {}
    try:
        wanted = {name: NODES[index % 2] for index, name in enumerate((*PODS, *FENCE[::-1]))}
        with ThreadPoolExecutor(max_workers=2) as pool:
            made = list(pool.map(lambda item: add(lab, *item), wanted.items()))
        for pod in made:
            probers[pod.title] = start_prober(lab, pod)
        pods.ready(probers.values())
        yield probers, {pod.title: pod for pod in made}
    finally:
        for prober in probers.values():
            prober.end()
