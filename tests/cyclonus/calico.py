"""A cluster as Calico stores it, for the independent oracle of tests/policy_random."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

from tests.cyclonus.cluster import DOORS, PROTOCOLS, Cluster, Document, namespace
from tests.netpol import pods
from tests.netpol.matrix import Pair
from tests.netpol.world import converted
from tests.policy_random.generator import API
from tests.policy_random.oracle import Flow, Oracle

TIER = {
    "apiVersion": API,
    "kind": "Tier",
    "metadata": {"name": "default"},
    "spec": {"order": 1000000, "defaultAction": "Deny"},
}


def matrices(cluster: Cluster, addresses: Mapping[str, str]) -> dict[str, dict[Pair, bool]]:
    """What each door's matrix must be, by the oracle."""
    oracle = Oracle.from_yaml("---\n".join(documents(cluster, addresses)))
    found: dict[str, dict[Pair, bool]] = {}
    for door in DOORS:
        protocol, _, port = door.partition(":")
        number = PROTOCOLS[protocol.upper()]
        found[door] = {
            pair: oracle.allows(Flow(*pair, 4, number, 40000, int(port)))
            for pair in permutations(cluster.pods, 2)
        }
    return found


def documents(cluster: Cluster, addresses: Mapping[str, str]) -> Iterator[str]:
    """What is stored of a cluster; policies and namespaces are what the conversion makes."""
    yield text(TIER)
    for name, labels in cluster.namespaces.items():
        yield converted(namespace(name, **labels))
    for document in cluster.policies.values():
        yield converted(document)
    for title in cluster.pods:
        yield text(endpoint(cluster, title, addresses[title]))


def endpoint(cluster: Cluster, title: str, address: str) -> Document:
    """A pod's endpoint, as CNI stores it."""
    space, _, name = title.partition("/")
    ports = [
        {"name": f"serve-{number}-{kind}", "protocol": kind.upper(), "port": int(number)}
        for kind, _, number in (door.partition(":") for door in pods.SERVED)
    ]
    return {
        "apiVersion": API,
        "kind": "WorkloadEndpoint",
        "metadata": {
            "name": f"node-k8s-{name}-eth0",
            "namespace": space,
            "labels": {**cluster.pods[title], "projectcalico.org/namespace": space},
        },
        "spec": {
            "orchestrator": "k8s",
            "node": "node",
            "pod": name,
            "endpoint": "eth0",
            "ipNetworks": [f"{address}/32"],
            "profiles": [f"kns.{space}"],
            "ports": ports,
        },
    }


def text(document: Any) -> str:
    """A document as one of a YAML stream."""
    return json.dumps(document) + "\n"
