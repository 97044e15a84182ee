"""Where a pod's labels, annotations and ports come from (wall 9 of the architecture).

The Kubernetes API is one source; what the runtime hands over with the call is the other:
labels by the CNI conventions (`args.cni.labels`), annotations by the capability
`io.kubernetes.cri.pod-annotations`, ports by `portMappings`. An orchestrator other than
Kubernetes, and the lab, have only the second. Tested in tests/cni/test_attachment.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cni.request.request import Request
from libcalico.model import WorkloadEndpointPort

DEFAULT_SERVICE_ACCOUNT = "default"
PROTOCOLS = {"tcp": "TCP", "udp": "UDP", "sctp": "SCTP"}


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of a pod beyond its name."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[WorkloadEndpointPort, ...] = ()
    service_account: str = DEFAULT_SERVICE_ACCOUNT
    generate_name: str = ""


class PodSource(Protocol):
    """Answers for one pod; raises `libcalico.errors.MuslinError` when it cannot."""

    async def facts(self, request: Request) -> PodFacts:
        """The facts of the pod that the request is about."""


class RuntimePodSource:
    """Reads what the runtime handed over, and nothing else."""

    async def facts(self, request: Request) -> PodFacts:
        """Never fails: what is malformed is left out, since the runtime may send anything."""
        config = request.config
        return PodFacts(
            labels=dict(config.labels),
            annotations=dict(config.annotations),
            ports=(*_named_ports(config.document), *_mapped_ports(config.document)),
        )


def _named_ports(document: Mapping[str, object]) -> list[WorkloadEndpointPort]:
    """`args.cni.ports`: a list of {name, protocol, port}, as a pod's container ports."""
    args = document.get("args")
    cni = args.get("cni") if isinstance(args, Mapping) else None
    ports = cni.get("ports") if isinstance(cni, Mapping) else None
    named = []
    for entry in ports if isinstance(ports, list) else []:
        if not isinstance(entry, Mapping):
            continue
        name, port = entry.get("name"), _port(entry.get("port", entry.get("containerPort")))
        protocol = PROTOCOLS.get(str(entry.get("protocol", "tcp")).lower())
        if isinstance(name, str) and name and port and protocol:
            named.append(WorkloadEndpointPort(name=name, protocol=protocol, port=port))
    return named


def _mapped_ports(document: Mapping[str, object]) -> list[WorkloadEndpointPort]:
    """`runtimeConfig.portMappings` (CNI conventions), in any case of the key."""
    runtime = document.get("runtimeConfig")
    if not isinstance(runtime, Mapping):
        return []
    mappings = next((v for k, v in runtime.items() if str(k).lower() == "portmappings"), None)
    ports = []
    for entry in mappings if isinstance(mappings, list) else []:
        if not isinstance(entry, Mapping):
            continue
        host, container = _port(entry.get("hostPort")), _port(entry.get("containerPort"))
        protocol = PROTOCOLS.get(str(entry.get("protocol", "tcp")).lower())
        address = entry.get("hostIP")
        if host and container and protocol:
            ports.append(
                WorkloadEndpointPort(
                    protocol=protocol,
                    port=container,
                    hostPort=host,
                    hostIP=address if isinstance(address, str) else "",
                )
            )
    return ports


def _port(value: object) -> int:
    """A usable port number, or 0."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536:
        return value
    return 0
