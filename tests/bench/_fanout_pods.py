"""A pod's life as the API sees it, step by step and by whom: what `./run bench fanout` has happen.

A start is five writes, and so is an end; a watcher of all pods is told of each, and twice of the
last, because the API writes it in two steps. Every write that can carries a stamp of the monotonic
clock in the annotation `sent`, from which watchers take the time.
Sources: kubernetes/pkg/kubelet/status/status_manager.go (order and patches of the kubelet),
docs/reference/data-model.md#kubernetes-datastore (annotations of the plugin).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from libcalico.conversion.pods import CONTAINER, POD_IP, POD_IPS

Json = dict[str, Any]
Call = Callable[[], tuple[str, str, Json, str]]
"""Method, path, body and content type, made at the moment of the write."""
SPACE = "bench-000"
JSON, STRATEGIC = "application/json", "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
SINCE = "2026-11-27T12:00:00Z"
IMAGE = "registry.example.com/shop/frontend@sha256:" + "0123456789abcdef" * 4
STARTED = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
EVENTS = 5, 6
"""Of a start, and of an end."""
IMAGES = 50
"""That a kubelet tells of at most."""


def name(number: int) -> str:
    """A pod's, always of one length, as ReplicaSets make them."""
    return f"frontend-7d4b9c6f5d-{number:06d}"


def address(number: int) -> str:
    """A pod's, always of one length."""
    return f"10.{100 + number // 10000 % 100}.{100 + number // 100 % 100}.{100 + number % 100}"


def node(number: int) -> str:
    """A node's name, always of one length."""
    return f"node-{number:04d}"


def start(number: int, on: str, space: str = SPACE) -> Sequence[Call]:
    """Created, bound, told of by the kubelet, attached by the plugin, running."""
    pods = f"/api/v1/namespaces/{space}/pods"
    status = f"{pods}/{name(number)}/status"
    ip = address(number)
    attached = {CONTAINER: f"{number:064x}", POD_IP: f"{ip}/32", POD_IPS: f"{ip}/32"}
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": on}}
    return [
        lambda: (
            "POST",
            f"{pods}?fieldManager=kube-controller-manager",
            {"metadata": {**_metadata(number), **_sent()}, "spec": spec()},
            JSON,
        ),
        lambda: (
            "POST",
            f"{pods}/{name(number)}/binding",
            {"metadata": {"name": name(number), **_sent()}, **target},
            JSON,
        ),
        lambda: _patch(status, "kubelet", _status("Pending", ("Initialized", "PodScheduled"))),
        lambda: _patch(status, "calico", {}, attached),
        lambda: _patch(
            status,
            "kubelet",
            {**_status("Running", STARTED), "podIP": ip, "podIPs": [{"ip": ip}]},
        ),
    ]


def end(number: int, space: str = SPACE) -> Sequence[Call]:
    """To be deleted, its containers over, detached by the plugin, its sandbox gone, gone."""
    pod = f"/api/v1/namespaces/{space}/pods/{name(number)}"
    over = _status("Succeeded", STARTED[:2])
    gone = _status("Succeeded", STARTED[1:2])
    return [
        lambda: ("DELETE", pod, {"gracePeriodSeconds": 30}, JSON),
        lambda: _patch(f"{pod}/status", "kubelet", over),
        lambda: _patch(f"{pod}/status", "calico", {}, {POD_IP: "", POD_IPS: ""}),
        lambda: _patch(f"{pod}/status", "kubelet", gone),
        lambda: ("DELETE", pod, {"gracePeriodSeconds": 0}, JSON),
    ]


def _sent() -> Json:
    return {"annotations": {"sent": f"{time.monotonic_ns():020d}"}}


def _patch(
    path: str, manager: str, status: Json, annotations: Json | None = None
) -> tuple[str, str, Json, str]:
    meta = {"annotations": {**_sent()["annotations"], **(annotations or {})}}
    body: Json = {"metadata": meta, **({"status": status} if status else {})}
    content = STRATEGIC if status else MERGE
    return "PATCH", f"{path}?fieldManager={manager}", body, content


def _metadata(number: int) -> Json:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "frontend-7d4b9c6f5d",
        "uid": "6d1f3f0e-8f0c-4c62-9d2f-3a8e4b1f7a55",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name(number),
        "generateName": "frontend-7d4b9c6f5d-",
        "labels": {
            "app.kubernetes.io/name": "frontend",
            "app.kubernetes.io/instance": "shop",
            "app.kubernetes.io/version": "2.14.3",
            "pod-template-hash": "7d4b9c6f5d",
            "tier": "front",
        },
        "ownerReferences": [owner],
    }


def spec() -> Json:
    """A pod of a Deployment: one container, a few settings, probes, a token."""
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    fields = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP", "NODE": "spec.nodeName"}
    token = {
        "name": "kube-api-access-x7k2p",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
            ],
        },
    }
    container = {
        "name": "frontend",
        "image": IMAGE,
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [
            *({"name": key, "value": f"http://{key.lower()}.shop.svc"} for key in ("CART", "USER")),
            *(
                {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for key, path in fields.items()
            ),
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "256Mi"},
        },
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {
                "name": token["name"],
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            }
        ],
    }
    return {
        "serviceAccountName": "default",
        "containers": [container],
        "volumes": [token],
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
    }


def _status(phase: str, true: Sequence[str]) -> Json:
    running = phase == "Running"
    state: Json = {"waiting": {"reason": "ContainerCreating"}}
    if running:
        state = {"running": {"startedAt": SINCE}}
    elif phase == "Succeeded":
        over = {"exitCode": 0, "reason": "Completed", "startedAt": SINCE, "finishedAt": SINCE}
        state = {"terminated": {**over, "containerID": f"containerd://{'a' * 64}"}}
    return {
        "phase": phase,
        "startTime": SINCE,
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}],
        "conditions": [
            {
                "type": word,
                "status": "True" if word in true else "False",
                "lastTransitionTime": SINCE,
                "observedGeneration": 1,
            }
            for word in STARTED
        ],
        "containerStatuses": [
            {
                "name": "frontend",
                "image": IMAGE,
                "imageID": IMAGE,
                "containerID": f"containerd://{'a' * 64}" if phase != "Pending" else "",
                "ready": running,
                "started": running,
                "restartCount": 0,
                "state": state,
            }
        ],
    }


def heartbeat(number: int) -> tuple[str, str, Json, str]:
    """What a kubelet writes of its node every five minutes, where nothing else changed.

    How often, and of how many images, is in its configuration: nodeStatusReportFrequency and
    nodeStatusMaxImages.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {
            "type": word,
            "status": "True" if word == "Ready" else "False",
            "lastHeartbeatTime": now,
            "lastTransitionTime": SINCE,
            "reason": f"KubeletHas{word}",
            "message": f"kubelet says {word}",
        }
        for word in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {
            "names": [f"registry.example.com/shop/image-{image:02d}@sha256:{image:064x}",
                      f"registry.example.com/shop/image-{image:02d}:1.{image}.0"],
            "sizeBytes": 100_000_000 + image,
        }
        for image in range(IMAGES)
    ]  # fmt: skip
    status = {
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "addresses": [{"type": "InternalIP", "address": address(number)}],
        "conditions": conditions,
        "images": images,
        "nodeInfo": {"kernelVersion": "6.1.0-31-amd64", "osImage": "Debian GNU/Linux 12"},
    }
    return _patch(f"/api/v1/nodes/{node(number)}/status", "kubelet", status)
