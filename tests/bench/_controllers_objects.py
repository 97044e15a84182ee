"""Objects of a cluster, written through a real API by several processes at once, and what its
nodes would have stored beside them: Calico Nodes, endpoints, blocks of addresses."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, ip_network
from typing import Any

from controllers.endpoints.endpoint_labels import PodFacts, endpoint_labels
from libcalico import names
from libcalico.datastore.interface import Change, Datastore, Put
from libcalico.model import (
    Block,
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    NodeSpec,
    OrchRef,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import AffinityKey, BlockKey, ResourceKey
from libcalico.model.resources.ipam import Attribute, BlockAffinity
from tests.controllers.scrape import with_metrics
from tests.support.apiserver import ADMIN

PROCESSES, CONNECTIONS = 4, 4
BLOCK = 64
FIRST = int(IPv4Address("10.0.0.0"))
PODS_IN_A_NAMESPACE = 250
IN_A_TRANSACTION = 100
PATCH = "application/merge-patch+json"
TRIES, BUSY = 5, (429, 500, 503, 504)

Call = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the cluster is. Pods are dealt to nodes and namespaces in turn."""

    nodes: int
    pods: int
    policies: int

    @property
    def spaces(self) -> int:
        """How many namespaces."""
        return max(2, self.pods // PODS_IN_A_NAMESPACE)

    def address(self, pod: int) -> IPv4Address:
        """A pod's; each node has blocks of its own."""
        number, ordinal = divmod(pod // self.nodes, BLOCK)
        return IPv4Address(FIRST + BLOCK * (number * self.nodes + pod % self.nodes) + ordinal)

    def labels(self, pod: int) -> dict[str, str]:
        """A pod's."""
        return {"app": f"app-{pod % 20}", "tier": ("front", "back")[pod % 2]}

    def space(self, number: int) -> str:
        """The namespace of a pod or policy."""
        return f"s{number % self.spaces}"


def calls(shape: Shape, kind: str, number: int) -> list[Call]:
    """What makes one object."""
    space = shape.space(number)
    if kind == "spaces":
        body = {"metadata": {"name": f"s{number}", "labels": {"team": f"t{number % 10}"}}}
        return [("POST", "/api/v1/namespaces", body)]
    if kind == "accounts":
        path = f"/api/v1/namespaces/s{number}/serviceaccounts"
        return [("POST", path, {"metadata": {"name": "default"}})]
    if kind == "nodes":
        labels = {"kubernetes.io/hostname": f"n{number}", "zone": f"z{number % 3}"}
        return [("POST", "/api/v1/nodes", {"metadata": {"name": f"n{number}", "labels": labels}})]
    if kind == "policies":
        path = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies"
        return [("POST", path, {"metadata": {"name": f"np{number}"}, "spec": rules(number)})]
    pods = f"/api/v1/namespaces/{space}/pods"
    address = str(shape.address(number))
    pod = {
        "metadata": {"name": f"p{number}", "labels": shape.labels(number)},
        "spec": {
            "nodeName": f"n{number % shape.nodes}",
            "serviceAccountName": "default",
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return [("POST", pods, pod), ("PATCH", f"{pods}/p{number}/status", {"status": status})]


def rules(number: int) -> dict[str, Any]:
    """The spec of a NetworkPolicy."""
    source = {"namespaceSelector": {"matchLabels": {"team": f"t{number % 10}"}}}
    return {
        "podSelector": {"matchLabels": {"app": f"app-{number % 20}"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [source], "ports": [{"port": 80 + number % 100}]}],
    }


def write(url: str, ca: str, shape: Shape) -> None:
    """All of them, over many connections. Raises RuntimeError for what is refused."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        for kind, count in (
            ("spaces", shape.spaces),
            ("accounts", shape.spaces),
            ("nodes", shape.nodes),
            ("policies", shape.policies),
            ("pods", shape.pods),
        ):
            parts = [range(start, count, PROCESSES) for start in range(PROCESSES)]
            list(pool.map(partial(_share, url, ca, shape, kind), parts))


def _share(url: str, ca: str, shape: Shape, kind: str, numbers: range) -> None:
    os.nice(1)
    parts = [numbers[start::CONNECTIONS] for start in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(partial(_one, url, ca, shape, kind), parts))


def _one(url: str, ca: str, shape: Shape, kind: str, numbers: range) -> None:
    context = ssl.create_default_context(cadata=ca)
    connection = http.client.HTTPSConnection(url.partition("//")[2], context=context, timeout=60)
    for number in numbers:
        for method, path, body in calls(shape, kind, number):
            content = PATCH if method == "PATCH" else "application/json"
            head = {"Authorization": f"Bearer {ADMIN}", "Content-Type": content}
            for tries in range(TRIES):
                connection.request(method, path, json.dumps(body), head)
                answer = connection.getresponse()
                text = answer.read()
                # Of a busy server the first attempt may have done it after all.
                if answer.status < 300 or (tries and answer.status == 409):
                    break
                if answer.status not in BUSY or tries == TRIES - 1:
                    raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
                time.sleep(1.0)
    connection.close()


async def store_nodes(store: Datastore, shape: Shape, metrics_port: int) -> None:
    """What nodes have stored: themselves, their endpoints, and their blocks of addresses."""
    changes: list[Change] = []
    for change in _stored(shape, metrics_port):
        changes.append(change)
        if len(changes) == IN_A_TRANSACTION:
            await store.commit(changes)
            changes = []
    if changes:
        await store.commit(changes)


def _stored(shape: Shape, metrics_port: int) -> Iterator[Change]:
    yield with_metrics(metrics_port)
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr="10.0.0.0/8", blockSize=26))
    yield Put(ResourceKey("IPPool", "p"), pool)
    for number in range(shape.nodes):
        name = f"n{number}"
        spec_of = NodeSpec(orchRefs=[OrchRef(nodeName=name, orchestrator="k8s")])
        yield Put(ResourceKey("Node", name), Node(metadata=Metadata(name=name), spec=spec_of))
        yield from _blocks(shape, number)
    for pod in range(shape.pods):
        yield _endpoint(shape, pod)


def _blocks(shape: Shape, node: int) -> Iterator[Change]:
    pods = range(node, shape.pods, shape.nodes)
    for start in range(0, len(pods), BLOCK):
        mine = pods[start : start + BLOCK]
        cidr = ip_network((int(shape.address(mine[0])), 26))
        attributes = [
            Attribute(
                handle_id=f"k8s-pod-network.c{pod}",
                secondary={"node": f"n{node}", "pod": f"p{pod}", "namespace": shape.space(pod)},
            )
            for pod in mine
        ]
        block = Block(
            cidr=str(cidr),
            affinity=f"host:n{node}",
            allocations=[i if i < len(mine) else None for i in range(BLOCK)],
            unallocated=list(range(len(mine), BLOCK)),
            attributes=attributes,
            sequenceNumberForAllocation={str(i): i for i in range(len(mine))},
        )
        yield Put(BlockKey(cidr), block)
        yield Put(AffinityKey(f"n{node}", cidr), BlockAffinity())


def _endpoint(shape: Shape, pod: int) -> Change:
    node, space = f"n{pod % shape.nodes}", shape.space(pod)
    name = names.workload_endpoint_name(node, names.KUBERNETES, f"p{pod}", "eth0")
    facts = PodFacts(node, "default", shape.labels(pod), ())
    endpoint = WorkloadEndpoint(
        metadata=Metadata(name=name, namespace=space, labels=endpoint_labels(facts, space)),
        spec=WorkloadEndpointSpec(
            orchestrator=names.KUBERNETES,
            node=node,
            pod=f"p{pod}",
            endpoint="eth0",
            containerID=f"c{pod}",
            serviceAccountName="default",
            ipNetworks=[f"{shape.address(pod)}/32"],
            interfaceName=f"cali{pod:x}",
            profiles=[f"kns.{space}", f"ksa.{space}.default"],
        ),
    )
    return Put(ResourceKey("WorkloadEndpoint", name, space), endpoint)
