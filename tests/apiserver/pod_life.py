"""The life of a pod as a cluster writes it: ReplicaSet, scheduler, kubelet and CNI.

Each step is one write of the API under the name of its writer, so that the object has the
managedFields that it has in a cluster. Its template is that of an ordinary web service: two
containers with variables, probes, resources and mounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.apiserver import ApiServer

Tree = dict[str, Any]
Step = tuple[str, Callable[[], object]]
"""What is written, and the call that writes it."""
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
WHEN = "2026-11-27T12:00:{:02d}Z"
IMAGE = "registry.example.com/production/web@sha256:" + "0123456789abcdef" * 4
CONTAINER = "c" * 64


class PodLife:
    """One pod of `node`, with one address. `steps` are made one after another."""

    def __init__(self, api: ApiServer, space: str, name: str, node: str, address: str) -> None:
        self._api, self._node, self._address = api, node, address
        self.name = name
        self._all = f"/api/v1/namespaces/{space}/pods"
        self._path = f"{self._all}/{name}"

    def steps(self) -> Iterator[Step]:
        """All writes, from the first to the last."""
        yield "made", self.make
        yield "bound", self.bind
        yield "kubelet: containers are made", lambda: self.report("Pending", "", False)
        yield "CNI: attached", lambda: self.annotate(f"{self._address}/32")
        yield "kubelet: runs", lambda: self.report("Running", self._address, False)
        yield "kubelet: ready", lambda: self.report("Running", self._address, True)
        yield "kubelet: a probe fails", lambda: self.report("Running", self._address, False)
        yield "kubelet: ready again", lambda: self.report("Running", self._address, True)
        yield "deleted, in 30 s", lambda: self._api.call("DELETE", self._path)
        yield "kubelet: not ready", lambda: self.report("Running", self._address, False)
        yield "CNI: detached", lambda: self.annotate("")
        yield "kubelet: ended", lambda: self.report("Succeeded", self._address, False)
        yield "removed", self.remove

    def live(self) -> None:
        """Until it is ready."""
        for name, write in self.steps():
            write()
            if name == "kubelet: ready":
                return

    def make(self) -> None:
        """As the controller of a ReplicaSet makes it."""
        path = f"{self._all}?fieldManager=kube-controller-manager"
        self._api.call("POST", path, pod(self.name))

    def bind(self) -> None:
        """As the scheduler binds it to its node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": self.name},
            "target": target,
        }
        self._api.call("POST", f"{self._path}/binding?fieldManager=kube-scheduler", body)

    def annotate(self, addresses: str) -> None:
        """As the CNI writes what it attached; empty when it is detached."""
        words = {"podIP": addresses, "podIPs": addresses}
        if addresses:
            words["containerID"] = CONTAINER
        annotations = {f"cni.projectcalico.org/{word}": text for word, text in words.items()}
        self._patch({"metadata": {"annotations": annotations}}, "calico-cni", MERGE)

    def label(self, **labels: str) -> None:
        """As a user gives it labels."""
        path = f"{self._path}?fieldManager=kubectl-label"
        self._api.call("PATCH", path, {"metadata": {"labels": labels}}, content=MERGE)

    def report(self, phase: str, address: str, ready: bool) -> None:
        """As the kubelet reports its state."""
        self._patch({"status": status(phase, address, ready)}, "kubelet", STRATEGIC)

    def remove(self) -> None:
        """As the kubelet removes it at last."""
        self._api.call("DELETE", f"{self._path}?gracePeriodSeconds=0")

    def _patch(self, body: Tree, manager: str, content: str) -> None:
        path = f"{self._path}/status?fieldManager={manager}"
        self._api.call("PATCH", path, body, content=content)


def status(phase: str, address: str, ready: bool) -> Tree:
    """The state of a pod of two containers."""
    runs = {"running": {"startedAt": WHEN.format(5)}}
    ended = {
        "terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": WHEN.format(5),
            "finishedAt": WHEN.format(50),
            "containerID": f"containerd://{CONTAINER}",
        }
    }
    states = {
        "Pending": {"waiting": {"reason": "ContainerCreating"}},
        "Running": runs,
        "Succeeded": ended,
    }
    conditions = {
        "PodReadyToStartContainers": bool(address),
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    unready = {"reason": "ContainersNotReady", "message": "containers with unready status: [web]"}
    found: Tree = {
        "phase": phase,
        "hostIP": "10.0.0.2",
        "hostIPs": [{"ip": "10.0.0.2"}],
        "startTime": WHEN.format(1),
        "conditions": [
            {
                "type": kind,
                "status": str(holds),
                "lastProbeTime": None,
                "lastTransitionTime": WHEN.format(3),
                **(unready if not holds and kind.endswith("Ready") else {}),
            }
            for kind, holds in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": IMAGE,
                "imageID": IMAGE if phase != "Pending" else "",
                "ready": ready,
                "started": phase == "Running",
                "restartCount": 0,
                "state": states[phase],
                "lastState": {},
                **({"containerID": f"containerd://{CONTAINER}"} if phase != "Pending" else {}),
            }
            for name in ("web", "proxy")
        ],
    }
    if address:
        found |= {"podIP": address, "podIPs": [{"ip": address}]}
    return found


def pod(name: str) -> Tree:
    """A pod of a Deployment, as its ReplicaSet makes it."""
    token = {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": TOKEN}}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-7c5ddbdf54",
        "uid": "7f0c1f0e-7a0b-4f0e-9d3a-1f2e3d4c5b6a",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        "app.kubernetes.io/component": "frontend",
        "app.kubernetes.io/instance": "web-production",
        "app.kubernetes.io/name": "web",
        "pod-template-hash": "7c5ddbdf54",
    }
    return {
        "metadata": {
            "generateName": "web-7c5ddbdf54-",
            "name": name,
            "labels": labels,
            "annotations": {
                "checksum/config": "0123456789abcdef" * 4,
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "serviceAccountName": "web",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
            "priority": 0,
            "containers": [_container("web", 8080), _container("proxy", 9090)],
            "affinity": {"podAntiAffinity": ANTI_AFFINITY},
            "volumes": [
                {"name": "config", "configMap": {"name": "web-config"}},
                {"name": "cache", "emptyDir": {"sizeLimit": "256Mi"}},
                token,
            ],
        },
    }


def _container(name: str, port: int) -> Tree:
    probe = {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10}
    references = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP", "NODE": "spec.nodeName"}
    plain = {
        "LOG_LEVEL": "info",
        "DATABASE_HOST": "postgres.production.svc.cluster.local",
        "CACHE_HOST": "redis.production.svc.cluster.local",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.observability.svc:4317",
        "FEATURE_FLAGS": "search,checkout,recommendations",
    }
    return {
        "name": name,
        "image": IMAGE,
        "ports": [{"name": "http" if name == "web" else "metrics", "containerPort": port}],
        "env": [
            *({"name": key, "value": text} for key, text in plain.items()),
            *(
                {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for key, path in references.items()
            ),
        ],
        "envFrom": [{"configMapRef": {"name": "web-environment"}}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "256Mi"},
        },
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/web", "readOnly": True},
            {"name": "cache", "mountPath": "/var/cache/web"},
            {
                "name": "kube-api-access-x7k2p",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
    }


TOKEN: list[Tree] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [
                {
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }
            ]
        }
    },
]
ANTI_AFFINITY: Tree = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
            },
        }
    ]
}
