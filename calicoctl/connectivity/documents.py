"""The Kubernetes objects of a connectivity test: a namespace, pods, a service, policies. Pure.

Everything lies in one namespace, so that one deletion takes it all away. A pod ends by itself after
the time that its spec names, also when nothing deletes it. Source: API reference of Pod
(`activeDeadlineSeconds`) and NetworkPolicy. Tested in
`tests/calicoctl/test_connectivity_documents.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calicoctl.connectivity import leftovers
from calicoctl.connectivity.model import ALLOWED, DENIED
from calicoctl.connectivity.running import PYTHON, program

PREFIX = "muslin-connectivity-test-"
SERVICE_NAME = "probe"
SERVER, CLIENT, NODE_CLIENT = "server", "client", "node"
ROLE = "muslin.io/role"
DENY, ALLOW = "deny-all", "allow-one-port"
CONTAINER = "probe"

Tree = dict[str, Any]


def namespace(name: str) -> Tree:
    """The namespace, marked as ours until a time."""
    labels = {
        leftovers.LABEL: "calicoctl",
        # Pods in the network of a node need it; nothing else in them is privileged.
        "pod-security.kubernetes.io/enforce": "privileged",
    }
    annotations = {leftovers.UNTIL: leftovers.expiry()}
    meta = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def pod_name(role: str, number: int) -> str:
    """The name of a pod; a node's own name may be too long for one."""
    return f"{role}-{number}"


def pod(space: str, role: str, number: int, node: str, image: str, port: int) -> Tree:
    """A pod on a node: a server, or one that sleeps until a probe is run in it."""
    seconds = str(int(leftovers.LIVE_SECONDS))
    name = pod_name(role, number)
    arguments = [name, seconds, str(port), str(port + 1)] if role == SERVER else [name, seconds]
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*PYTHON, program(), "serve", *arguments],
        "securityContext": {
            "runAsUser": 65534,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "labels": {ROLE: role}},
        "spec": {
            "nodeName": node,
            "hostNetwork": role == NODE_CLIENT,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(leftovers.LIVE_SECONDS),
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def pods(space: str, nodes: Sequence[str], image: str, port: int) -> list[Tree]:
    """A server, a client, and a client in the network of the node, on each node."""
    return [
        pod(space, role, number, node, image, port)
        for number, node in enumerate(nodes)
        for role in (SERVER, CLIENT, NODE_CLIENT)
    ]


def service(space: str, port: int) -> Tree:
    """A Service with a cluster address over all servers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE_NAME, "namespace": space},
        "spec": {"selector": {ROLE: SERVER}, "ports": [{"port": port, "targetPort": port}]},
    }


def policies(space: str, phase: str, port: int) -> list[Tree]:
    """The policies that a phase adds: nothing in, then one port from the clients."""
    chosen = {"matchLabels": {ROLE: SERVER}}
    if phase == DENIED:
        return [_policy(space, DENY, {"podSelector": chosen, "policyTypes": ["Ingress"]})]
    if phase == ALLOWED:
        rule = {
            "from": [{"podSelector": {"matchLabels": {ROLE: CLIENT}}}],
            "ports": [{"protocol": "TCP", "port": port}],
        }
        spec = {"podSelector": chosen, "policyTypes": ["Ingress"], "ingress": [rule]}
        return [_policy(space, ALLOW, spec)]
    return []


def _policy(space: str, name: str, spec: Tree) -> Tree:
    meta = {"name": name, "namespace": space}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": spec,
    }


def listed(trees: Sequence[Tree]) -> Tree:
    """Several objects as one document."""
    return {"apiVersion": "v1", "kind": "List", "items": list(trees)}
