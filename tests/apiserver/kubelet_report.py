"""What a kubelet reports of its Node every five minutes: a machine of 50 images."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver import ApiServer

LABELS = {
    "kubernetes.io/hostname": "n2",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "topology.kubernetes.io/zone": "eu-1a",
    "topology.kubernetes.io/region": "eu-1",
    "node.kubernetes.io/instance-type": "m5.4xlarge",
}
ANNOTATIONS = {
    "node.alpha.kubernetes.io/ttl": "0",
    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    "projectcalico.org/IPv4Address": "10.0.0.2/24",
    "projectcalico.org/IPv4IPIPTunnelAddr": "10.65.1.1",
    "projectcalico.org/ASNumber": "64512",
}
SIZES = {"cpu": "16", "memory": "65806460Ki", "pods": "110", "ephemeral-storage": "203056560Ki"}
INFO = {
    "machineID": "0123456789abcdef" * 2,
    "systemUUID": "7f0c1f0e-7a0b-4f0e-9d3a-1f2e3d4c5b6a",
    "bootID": "7f0c1f0e-7a0b-4f0e-9d3a-1f2e3d4c5b6b",
    "kernelVersion": "6.1.0-18-amd64",
    "osImage": "Debian GNU/Linux 12 (bookworm)",
    "containerRuntimeVersion": "containerd://2.0.1",
    "kubeletVersion": "v1.36.3",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def register(api: ApiServer, name: str) -> None:
    """Have a node as its kubelet and Calico made it."""
    body = {
        "metadata": {"name": name, "labels": LABELS, "annotations": ANNOTATIONS},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
    }
    api.call("POST", "/api/v1/nodes?fieldManager=kubelet", body)
    report(api, name, 0)


def report(api: ApiServer, name: str, minute: int) -> int:
    """One report; its revision."""
    images = (f"registry.example.com/team-{n % 7}/service-{n}" for n in range(50))
    conditions = [
        {
            "type": kind,
            "status": str(kind == "Ready"),
            "lastHeartbeatTime": f"2026-11-27T12:{minute:02d}:00Z",
            "lastTransitionTime": "2026-11-27T11:00:00Z",
            "reason": f"KubeletHas{kind}",
            "message": f"kubelet says {kind}",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    status: dict[str, Any] = {
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.2"},
            {"type": "Hostname", "address": name},
        ],
        "capacity": SIZES,
        "allocatable": SIZES,
        "nodeInfo": INFO,
        "images": [
            {"names": [f"{one}@sha256:{'0123456789abcdef' * 4}", f"{one}:v1"], "sizeBytes": 123456}
            for one in images
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    content = "application/strategic-merge-patch+json"
    path = f"/api/v1/nodes/{name}/status?fieldManager=kubelet"
    answer = api.call("PATCH", path, {"status": status}, content=content)
    return int(answer["metadata"]["resourceVersion"])
