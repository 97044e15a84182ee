"""A small shop to ask questions about: documents, one function a kind."""

from __future__ import annotations

from typing import Any

from felix.explain.ends import find
from felix.explain.flow import Kind
from felix.explain.path import Questions
from felix.explain.stations import Explanation
from felix.explain.world import World
from tests.support.explaining import world_of

Document = dict[str, Any]
API = "projectcalico.org/v3"
ALLOW, DENY = {"action": "Allow"}, {"action": "Deny"}
OPEN = {"ingress": [ALLOW], "egress": [ALLOW]}


def document(
    kind: str, name: str, namespace: str = "", labels: Any = None, **spec: Any
) -> Document:
    """Any resource."""
    metadata: Document = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def pod(title: str, number: int, node: str = "node1", ports: Any = None, **labels: str) -> Document:
    """A pod 10.65.NODE.NUMBER, fd65::NODE:NUMBER."""
    namespace, name = title.split("/")
    where = node.removeprefix("node")
    return document(
        "WorkloadEndpoint",
        f"{node}-k8s-{name.replace('-', '--')}-eth0",
        namespace,
        {"projectcalico.org/namespace": namespace, **labels},
        orchestrator="k8s",
        node=node,
        pod=name,
        endpoint="eth0",
        containerID="c" * 64,
        interfaceName=f"cali{where}{number}",
        ipNetworks=[f"10.65.{where}.{number}/32", f"fd65::{where}:{number}/128"],
        profiles=[f"kns.{namespace}"],
        **({"ports": ports} if ports else {}),
    )


def profile(namespace: str, **spec: Any) -> Document:
    """The profile of a namespace, open unless said otherwise."""
    labels = {"pcns.projectcalico.org/name": namespace}
    return document("Profile", f"kns.{namespace}", labelsToApply=labels, **(spec or OPEN))


def policy(name: str, selector: str = "all()", namespace: str = "", **spec: Any) -> Document:
    """A NetworkPolicy of a namespace, else a global one."""
    kind = "NetworkPolicy" if namespace else "GlobalNetworkPolicy"
    return document(kind, name, namespace, tier="default", selector=selector, **spec)


def node(name: str) -> Document:
    """A node 10.99.0.N."""
    return document("Node", name, bgp={"ipv4Address": f"10.99.0.{name.removeprefix('node')}/24"})


def host(name: str, on: str, interface: str = "", *, labels: Any = None, **spec: Any) -> Document:
    """A host endpoint."""
    if interface:
        spec["interfaceName"] = interface
    return document("HostEndpoint", name, labels=labels, node=on, **spec)


TIER = document("Tier", "default", order=1000000, defaultAction="Deny")
SHOP = [
    TIER,
    node("node1"),
    node("node2"),
    document("IPPool", "pods", cidr="10.65.0.0/16", natOutgoing=True, ipipMode="Never"),
    profile("shop"),
    profile("lab"),
    pod("shop/web-0", 6, "node1", role="web"),
    pod("shop/web-1", 7, "node2", role="web"),
    pod("shop/db-0", 8, "node2", [{"name": "sql", "protocol": "TCP", "port": 5432}], role="db"),
    pod("lab/guest", 9, "node1"),
]
DB = policy(
    "db",
    "role == 'db'",
    "shop",
    types=["Ingress"],
    ingress=[
        {"action": "Log"},
        {"action": "Deny", "protocol": "TCP", "source": {"nets": ["10.65.0.0/30"]}},
        {
            "action": "Allow",
            "protocol": "TCP",
            "source": {"selector": "role == 'web'"},
            "destination": {"ports": [5432, "8080:8090"]},
        },
    ],
)


def shop(*more: Document, without: tuple[str, ...] = ()) -> World:
    """The shop with more in it."""
    kept = [d for d in SHOP if d["metadata"]["name"] not in without]
    return world_of([*kept, *more])


def questions(world: World, source: str, destination: str) -> Questions:
    """The questions about a pair."""
    return Questions(world, find(world, source), find(world, destination))


def asked(
    world: World, source: str, destination: str, kind: Kind | None = None, version: int = 4
) -> Explanation:
    """One answer; TCP to port 5432 unless said otherwise."""
    return questions(world, source, destination).ask(kind or Kind(6, 5432), version)
