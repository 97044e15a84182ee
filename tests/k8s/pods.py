"""Pods of the tests: a web server that says which pod it is, and clients of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.k8s.images import BUSYBOX

PORT = 8080
_SERVE = f"hostname > /index.html; exec httpd -f -v -p {PORT} -h /"


def spec(node: str = "", **more: Any) -> dict[str, Any]:
    """What a pod runs: it answers HTTP with its name."""
    container = {
        "name": "web",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _SERVE],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    }
    place = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        **place,
        **more,
    }


def pod(
    name: str, labels: Mapping[str, str], node: str = "", space: str = "default", **more: Any
) -> dict[str, Any]:
    """A pod."""
    meta = {"name": name, "namespace": space, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec(node, **more)}


def deployment(name: str, replicas: int, space: str = "default", **more: Any) -> dict[str, Any]:
    """Several of them, spread over the nodes; label `app` is the name."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    template = spec(**more) if more.get("hostNetwork") else spec(
        topologySpreadConstraints=[spread], **more
    )  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
    }


def service(name: str, selector: Mapping[str, str], space: str = "default") -> dict[str, Any]:
    """A Service with a cluster address, on port 80."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": dict(selector), "ports": [{"port": 80, "targetPort": PORT}]},
    }


def policy(
    name: str, chosen: Mapping[str, str], kinds: Sequence[str], space: str = "default", **rules: Any
) -> dict[str, Any]:
    """A NetworkPolicy over the pods with these labels."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "podSelector": {"matchLabels": dict(chosen)},
            "policyTypes": list(kinds),
            **rules,
        },
    }
