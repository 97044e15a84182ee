"""A client of the container runtime interface: what the kubelet asks a runtime for a sandbox."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.cri import messages

READY = 0
"""PodSandboxState SANDBOX_READY."""
SECONDS = 120.0


class RuntimeFailed(Exception):
    """What the runtime answered instead."""


@dataclass(frozen=True)
class Wish:
    """A pod as the kubelet hands it over; `ports` maps ports of the host to the pod's (TCP)."""

    name: str
    namespace: str = "default"
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    ports: Mapping[int, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 0

    def config(self, cgroup: str) -> dict[str, Any]:
        """PodSandboxConfig."""
        return {
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "attempt": self.attempt,
            },
            "hostname": self.name,
            "port_mappings": [
                {"container_port": inside, "host_port": outside}
                for outside, inside in self.ports.items()
            ],
            "annotations": dict(self.annotations),
            "linux": {"cgroup_parent": cgroup},
        }


@dataclass(frozen=True)
class Sandbox:
    """What PodSandboxStatus tells."""

    id: str
    state: int
    addresses: tuple[str, ...]
    netns: str
    """Path of its network namespace in the node; empty once it is stopped."""


class Client:
    """Speaks to one runtime over its socket."""

    def __init__(self, socket: Path, cgroup: str) -> None:
        self._cgroup = cgroup
        # The authority that gRPC makes of a path is none that containerd's server accepts.
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix://{socket}", options)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def call(self, method: str, tree: dict[str, Any] | None = None, *, seconds: float = SECONDS,
             ) -> dict[str, Any]:  # fmt: skip
        """One call of RuntimeService. Raises RuntimeFailed with the runtime's own words."""
        way = self._channel.unary_unary(f"/{messages.PACKAGE}.RuntimeService/{method}")
        try:
            answer = way(messages.encode(f"{method}Request", tree or {}), timeout=seconds)
        except grpc.RpcError as error:
            raise RuntimeFailed(f"{error.code().name}: {error.details()}") from error
        return messages.decode(f"{method}Response", answer)

    def begin(self, wish: Wish) -> Any:
        """RunPodSandbox under way, for a kubelet that gives up: `cancel` ends its call."""
        way = self._channel.unary_unary(f"/{messages.PACKAGE}.RuntimeService/RunPodSandbox")
        request = messages.encode("RunPodSandboxRequest", {"config": wish.config(self._cgroup)})
        return way.future(request, timeout=SECONDS)

    def run(self, wish: Wish, *, seconds: float = SECONDS) -> Sandbox:
        """RunPodSandbox, and what it became."""
        config = wish.config(self._cgroup)
        made = self.call("RunPodSandbox", {"config": config}, seconds=seconds)
        return self.look(made["pod_sandbox_id"])

    def look(self, sandbox: str) -> Sandbox:
        """PodSandboxStatus."""
        answer = self.call("PodSandboxStatus", {"pod_sandbox_id": sandbox, "verbose": True})
        status = answer["status"]
        network = status.get("network", {})
        found = [network.get("ip", ""), *(one["ip"] for one in network.get("additional_ips", []))]
        spec = json.loads(answer["info"].get("info", "{}")).get("runtimeSpec") or {}
        places = (spec.get("linux") or {}).get("namespaces") or []
        netns = next((one.get("path", "") for one in places if one["type"] == "network"), "")
        return Sandbox(sandbox, status["state"], tuple(filter(None, found)), netns)

    def stop(self, sandbox: str, *, seconds: float = SECONDS) -> None:
        """StopPodSandbox: the pod's network is taken down."""
        self.call("StopPodSandbox", {"pod_sandbox_id": sandbox}, seconds=seconds)

    def remove(self, sandbox: str) -> None:
        """RemovePodSandbox."""
        self.call("RemovePodSandbox", {"pod_sandbox_id": sandbox})

    def end(self, sandbox: str) -> None:
        """Both, as the kubelet does."""
        self.stop(sandbox)
        self.remove(sandbox)

    def sandboxes(self) -> list[str]:
        """The ids of all, in whatever state."""
        return [one["id"] for one in self.call("ListPodSandbox")["items"]]

    def network_ready(self) -> tuple[bool, str]:
        """The condition that a kubelet makes the node's readiness of, and its message."""
        conditions = self.call("Status")["status"]["conditions"]
        found = next(one for one in conditions if one["type"] == "NetworkReady")
        return found["status"], found["message"]
