"""What `./run bench felix-snapshot` stores: the shapes of Calico's own calculation benchmark.

`markers` is its largest: every endpoint has one of thirty markers, five labels that one endpoint
in so many has, and a name of its own; every policy selects a marker and lets others in by theirs.
`sets` has policies that select everybody, each with a network set of its own. `different` has no
two policies of one selector, and no two rules of one meaning.
Pure: keys and bytes as Calico writes them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROOT = "/calico/resources/v3/projectcalico.org/"
ENDPOINTS = f"{ROOT}workloadendpoints/"
NODE = "node-here"
NAMESPACES = 100
MARKERS = 30
ONE_IN = (2, 10, 100, 1000, 10000)
LOCAL = 200
TIME = "2026-11-21T15:05:36Z"
FILLING = "-" * 170
"""Makes an endpoint as large as those of the published figures, 1,030 bytes."""
Pair = tuple[str, bytes]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of what. `endpoints` are other nodes'; `kind` is `markers`, `sets`, `different`."""

    kind: str
    endpoints: int
    policies: int

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.kind} {self.endpoints}/{self.policies}"


def objects(shape: Shape) -> Iterator[Pair]:
    """Everything that is stored."""
    yield resource("ClusterInformation", "default", {"datastoreReady": True})
    yield resource("Tier", "default", {"order": 1000000, "defaultAction": "Deny"})
    yield resource("IPPool", "pods", {"cidr": "10.0.0.0/8", "ipipMode": "Never"})
    for number in range(NAMESPACES):
        name = f"ns{number}"
        given = {"pcns.projectcalico.org/name": name, "pcns.team": f"team{number % 10}"}
        allow = [{"action": "Allow", "source": {}, "destination": {}}]
        spec = {"ingress": allow, "egress": allow, "labelsToApply": given}
        yield resource("Profile", f"kns.{name}", spec)
    for number in range(shape.policies):
        yield policy(shape, number)
        if shape.kind == "sets":
            yield network_set(number)
    for number in range(LOCAL):
        yield endpoint(shape, number, NODE)
    for number in range(LOCAL, LOCAL + shape.endpoints):
        yield endpoint(shape, number, f"node-{number % 5000}")


def resource(kind: str, name: str, spec: Json, labels: dict[str, str] | None = None) -> Pair:
    """One resource without namespace."""
    plural = {
        "ClusterInformation": "clusterinformations",
        "GlobalNetworkPolicy": "globalnetworkpolicies",
        "GlobalNetworkSet": "globalnetworksets",
        "IPPool": "ippools",
        "Profile": "profiles",
        "Tier": "tiers",
    }[kind]
    uid = _uid(zlib.crc32(name.encode()))
    metadata: Json = {"name": name, "uid": uid, "creationTimestamp": TIME}
    if labels:
        metadata["labels"] = labels
    return f"{ROOT}{plural}/{name}", _encoded(kind, metadata, spec)


def policy(shape: Shape, number: int) -> Pair:
    """A policy of five rules that lets in four others, and out."""
    name = f"default.p{number}"
    if shape.kind == "sets":
        selectors = ["all()", f"set == 's{number}'"]
    elif shape.kind == "different":
        others = (f"pod-name == 'web-{number * 3 + step}'" for step in (0, 1, 2))
        selectors = [f"{marker(number)} && pod-name != 'web-{number}'", *others]
    else:
        selectors = [marker(number + step) for step in (0, 1, 2, 3)]
    ingress: list[Json] = [
        {
            "action": "Allow",
            "protocol": "TCP",
            "source": {"selector": text},
            "destination": {"ports": [_port(shape, number, step)]},
        }
        for step, text in enumerate(selectors[1:])
    ]
    egress: list[Json] = []
    if shape.kind != "sets":
        ingress.append({"action": "Deny", "source": {"nets": ["192.0.2.0/24"]}, "destination": {}})
        egress.append({"action": "Allow", "source": {}, "destination": {}})
    spec = {
        "tier": "default",
        "order": 100 + number % 50,
        "ingress": ingress,
        "egress": egress,
        "selector": selectors[0],
        "types": ["Ingress", "Egress"] if egress else ["Ingress"],
    }
    return resource("GlobalNetworkPolicy", name, spec)


def _port(shape: Shape, number: int, step: int) -> int:
    return 1024 + number if shape.kind == "different" and step else 80 + step


def marker(number: int) -> str:
    """The selector of a marker."""
    return f"has(marker-{number % MARKERS})"


def network_set(number: int) -> Pair:
    """The set of one policy: four nets."""
    nets = [f"172.{16 + (number >> 8)}.{number & 255}.{part * 64}/26" for part in range(4)]
    return resource("GlobalNetworkSet", f"s{number}", {"nets": nets}, {"set": f"s{number}"})


def labels(number: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The labels of one endpoint; 5,003 is prime to all, so the few are spread over the many."""
    scattered = number * 5003
    found = {
        f"one-in-{many}": "true" if not scattered % many else f"no-{scattered % 7}"
        for many in ONE_IN
    }
    found[f"marker-{number % MARKERS}"] = "true"
    found["pod-name"] = f"web-{number}"
    namespace = f"ns{number % NAMESPACES}"
    return {
        **found,
        "projectcalico.org/namespace": namespace,
        "projectcalico.org/orchestrator": "k8s",
        "projectcalico.org/serviceaccount": "default",
        **(extra or {}),
    }


def name_of(number: int, node: str) -> tuple[str, str]:
    """Namespace and name of an endpoint."""
    return f"ns{number % NAMESPACES}", f"{node.replace('-', '--')}-k8s-web--{number}-eth0"


def address(number: int) -> str:
    """The address of an endpoint."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def endpoint(
    shape: Shape, number: int, node: str, extra: dict[str, str] | None = None, ip: str = ""
) -> Pair:
    """One endpoint, as a Calico node writes it."""
    namespace, name = name_of(number, node)
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": _uid(number),
        "creationTimestamp": TIME,
        "labels": labels(number, extra),
        "annotations": {"example.org/filling": FILLING},
    }
    spec = {
        "orchestrator": "k8s",
        "workload": "",
        "node": node,
        "containerID": f"{number:064x}",
        "pod": f"web-{number}",
        "endpoint": "eth0",
        "serviceAccountName": "default",
        "ipNetworks": [f"{ip or address(number)}/32"],
        "profiles": [f"kns.{namespace}"],
        "interfaceName": f"cali{number:011x}",
        "mac": "ee:ee:ee:ee:ee:ee",
    }
    raw = _encoded("WorkloadEndpoint", metadata, spec)
    return f"{ENDPOINTS}{namespace}/{name}", raw


def _uid(number: int) -> str:
    return f"567705fe-39d6-465b-a579-{number & 0xFFFFFFFFFFFF:012x}"


def _encoded(kind: str, metadata: Json, spec: Json) -> bytes:
    tree = {
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": metadata,
        "spec": spec,
    }
    return json.dumps(tree, separators=(",", ":")).encode()
