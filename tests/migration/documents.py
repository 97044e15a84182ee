"""What Calico's programs stored for one node with two pods: names and fields as they write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from lab.pods import Pod
from libcalico import names

Json = dict[str, Any]
RESOURCES = "/calico/resources/v3/projectcalico.org"
IPAM = "/calico/ipam/v2"
MADE = "2026-11-21T14:53:14Z"
POOL, BLOCK = "10.65.0.0/16", "10.65.166.128/26"
NETWORK = "k8s-pod-network"
ALLOW = [{"action": "Allow"}]


def resource(
    kind: str, name: str, spec: Json, namespace: str = "", labels: Json | None = None
) -> Json:
    """A document as Calico's client encodes it; the number makes uids differ."""
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= {"uid": f"c7a55e21-a099-402d-b40a-{sum(name.encode()):012d}"}
    metadata["creationTimestamp"] = MADE
    if labels:
        metadata["labels"] = labels
    return {
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": metadata,
        "spec": spec,
    }


def of_the_cluster() -> Iterator[tuple[str, Json]]:
    """What Calico keeps of a cluster: its pool, tiers, a namespace and a policy."""
    yield (
        "clusterinformations/default",
        resource(
            "ClusterInformation",
            "default",
            {
                "clusterGUID": "9e5583aa9119429a90cc27d7d5f85c46",
                "clusterType": "k8s,bgp",
                "calicoVersion": "v3.33.0",
                "datastoreReady": True,
            },
        ),
    )
    felix = {"logSeverityScreen": "Info", "nftablesMode": "Auto", "bpfEnabled": False}
    yield "felixconfigurations/default", resource("FelixConfiguration", "default", felix)
    pool = {
        "cidr": POOL,
        "vxlanMode": "Never",
        "ipipMode": "Never",
        "natOutgoing": True,
        "blockSize": 26,
        "nodeSelector": "all()",
        "allowedUses": ["Workload", "Tunnel"],
        "assignmentMode": "Automatic",
    }
    yield "ippools/default-ipv4-ippool", resource("IPPool", "default-ipv4-ippool", pool)
    for name, order, action in (
        ("default", 1_000_000, "Deny"),
        ("kube-admin", 1000, "Pass"),
        ("kube-baseline", 10_000_000, "Pass"),
    ):
        tier = {"order": order, "defaultAction": action}
        yield f"tiers/{name}", resource("Tier", name, tier)
    yield (
        "profiles/kns.default",
        resource(
            "Profile",
            "kns.default",
            {
                "ingress": ALLOW,
                "egress": ALLOW,
                "labelsToApply": {"pcns.projectcalico.org/name": "default"},
            },
        ),
    )
    account = {"labelsToApply": {"pcsa.projectcalico.org/name": "default"}}
    yield "profiles/ksa.default.default", resource("Profile", "ksa.default.default", account)
    rule = {"action": "Allow", "source": {"selector": "role == 'client'"}, "destination": {}}
    policy = {
        "tier": "default",
        "selector": "app == 'web'",
        "types": ["Ingress"],
        "ingress": [rule],
    }
    yield (
        "networkpolicies/default/clients",
        resource("NetworkPolicy", "clients", policy, "default"),
    )


def of_the_node(node: str, address: str, pods: list[Pod]) -> Iterator[tuple[str, Json]]:
    """A node's resource and the endpoints of its pods."""
    spec = {"bgp": {"ipv4Address": address}}
    yield f"nodes/{node}", resource("Node", node, spec, labels={"zone": "a"}) | {"status": {}}
    for pod in pods:
        name = f"{node}-k8s-{pod.name.replace('-', '--')}-eth0"
        labels = {
            **pod.labels,
            "projectcalico.org/namespace": "default",
            "projectcalico.org/orchestrator": "k8s",
            "projectcalico.org/serviceaccount": "default",
        }
        endpoint = {
            "orchestrator": "k8s",
            "node": node,
            "containerID": pod.container_id,
            "pod": pod.name,
            "endpoint": "eth0",
            "serviceAccountName": "default",
            "ipNetworks": [f"{pod.address}/32"],
            "profiles": ["kns.default", "ksa.default.default"],
            "interfaceName": names.host_interface_name("default", pod.name),
            "mac": mac(pod),
        }
        yield (
            f"workloadendpoints/default/{name}",
            resource("WorkloadEndpoint", name, endpoint, "default", labels),
        )


def mac(pod: Pod) -> str:
    """The hardware address of a pod's eth0."""
    return "7e:d5:16:" + ":".join(pod.container_id[at : at + 2] for at in (0, 2, 4))


def of_the_addresses(node: str, pods: list[Pod]) -> Iterator[tuple[str, Json]]:
    """The node's block, its affinity and the handles of its pods."""
    network = ip_network(BLOCK)
    size, key = network.num_addresses, BLOCK.replace("/", "-")
    allocations: list[int | None] = [None] * size
    attributes, sequence = [], 1795273157750155218
    taken: dict[str, int] = {}
    for index, pod in enumerate(pods):
        ordinal = int(ip_address(pod.address)) - int(network.network_address)
        allocations[ordinal] = index
        taken[str(ordinal)] = sequence + index
        handle = f"{NETWORK}.{pod.container_id}"
        attributes.append(
            {
                "handle_id": handle,
                "secondary": {
                    "namespace": "default",
                    "node": node,
                    "pod": pod.name,
                    "timestamp": "2026-11-21 15:05:36.162412993 +0000 UTC",
                },
            }
        )
        yield f"handle/{handle}", {"block": {BLOCK: 1}, "deleted": False}
    last = max(map(int, taken))
    order = [*range(last + 1, size), *range(last + 1)]
    yield (
        f"assignment/ipv4/block/{key}",
        {
            "cidr": BLOCK,
            "affinity": f"host:{node}",
            "affinity_claim_time": "2026-11-21T14:59:17Z",
            "allocations": allocations,
            "unallocated": [at for at in order if allocations[at] is None],
            "attributes": attributes,
            "sequenceNumber": sequence + len(pods),
            "sequenceNumberForAllocation": taken,
            "deleted": False,
        },
    )
    yield f"host/{node}/ipv4/block/{key}", {"state": "confirmed", "deleted": False}


def encoded(document: Json) -> str:
    """Without spaces, as Go encodes."""
    return json.dumps(document, separators=(",", ":"))
