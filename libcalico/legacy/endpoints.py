"""Host and workload endpoints of the first generation as v3 trees.

Tested in tests/libcalico/test_legacy.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from libcalico.errors import InvalidValue
from libcalico.legacy import names, rules
from libcalico.legacy.shapes import (
    V1HostEndpointMetadata,
    V1HostEndpointSpec,
    V1Port,
    V1WorkloadEndpointMetadata,
    V1WorkloadEndpointSpec,
)
from libcalico.names import CNI, KUBERNETES, LIBNETWORK, workload_endpoint_name


def host_endpoint(
    metadata: V1HostEndpointMetadata, spec: V1HostEndpointSpec, subject: str
) -> dict[str, object]:
    """A HostEndpoint, named after its node and itself. Raises InvalidValue."""
    if not metadata.node:
        raise InvalidValue("metadata.node", "", "a host endpoint names its node", subject)
    node = names.node_name(metadata.node)
    tree = {
        "node": node,
        "interfaceName": spec.interfaceName,
        "expectedIPs": list(spec.expectedIPs),
        "profiles": [names.profile_name(profile) for profile in spec.profiles],
        "ports": _ports(spec.ports),
    }
    return {
        "kind": "HostEndpoint",
        "metadata": _metadata(names.name(f"{node}.{metadata.name}"), metadata.labels),
        "spec": {name: value for name, value in tree.items() if value},
    }


def workload_endpoint(
    metadata: V1WorkloadEndpointMetadata, spec: V1WorkloadEndpointSpec, subject: str
) -> dict[str, object]:
    """A WorkloadEndpoint with the name that v3 makes of its parts. Raises InvalidValue."""
    for part in ("name", "workload", "orchestrator", "node"):
        if not getattr(metadata, part):
            field, rule = f"metadata.{part}", "a workload endpoint names it"
            raise InvalidValue(field, "", rule, subject)
    node = names.node_name(metadata.node)
    orchestrator, endpoint = names.name(metadata.orchestrator), names.name(metadata.name)
    namespace, parts = _workload(metadata, subject)
    labels = dict(metadata.labels)
    if rules.OLD_NAMESPACE_LABEL in labels:
        labels[rules.NAMESPACE_LABEL] = labels.pop(rules.OLD_NAMESPACE_LABEL)
    tree = {
        "orchestrator": orchestrator,
        "node": node,
        **parts,
        "endpoint": endpoint,
        "ipNetworks": list(spec.ipNetworks),
        "ipNATs": [
            {"internalIP": one.internalIP, "externalIP": one.externalIP} for one in spec.ipNATs
        ],
        "ipv4Gateway": spec.ipv4Gateway,
        "ipv6Gateway": spec.ipv6Gateway,
        "profiles": [names.profile_name(one) for one in spec.profiles],
        "interfaceName": spec.interfaceName,
        "mac": spec.mac,
        "ports": _ports(spec.ports),
        "allowSpoofedSourcePrefixes": list(spec.spoofed),
    }
    key = {KUBERNETES: "pod", CNI: "containerID"}.get(orchestrator, "workload")
    return {
        "kind": "WorkloadEndpoint",
        "metadata": {
            **_metadata(workload_endpoint_name(node, orchestrator, parts[key], endpoint), labels),
            "namespace": namespace,
        },
        "spec": {name: value for name, value in tree.items() if value},
    }


def _workload(metadata: V1WorkloadEndpointMetadata, subject: str) -> tuple[str, dict[str, str]]:
    """The namespace, and the fields that say which workload it is."""
    match metadata.orchestrator:
        case "k8s":
            namespace, dot, pod = metadata.workload.partition(".")
            if not (namespace and dot and pod):
                field, rule = "metadata.workload", "must be <namespace>.<pod> with orchestrator k8s"
                raise InvalidValue(field, metadata.workload, rule, subject)
            container = metadata.activeInstanceID
            return namespace, {"pod": pod} | ({"containerID": container} if container else {})
        case "cni":
            return "default", {"containerID": metadata.workload}
        case "libnetwork":
            return "default", {"workload": LIBNETWORK}
        case _:
            return "default", {"workload": names.name(metadata.workload)}


def _ports(ports: Sequence[V1Port]) -> list[dict[str, object]]:
    return [
        {"name": port.name, "protocol": rules.protocol(port.protocol), "port": port.port}
        for port in ports
    ]


def _metadata(name: str, labels: dict[str, str]) -> dict[str, object]:
    return {"name": name, "labels": dict(labels)} if labels else {"name": name}
