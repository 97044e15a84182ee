"""A pod as a WorkloadEndpoint (docs/reference/data-model.md#labels-and-profiles-of-pods), made of
the API's object alone.

Its addresses are those that the kubelet reports. Until the first report they are those that the
plugin wrote into an annotation. A user who may only edit pods cannot forge the report.
Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_interface, ip_network
from typing import Any

import msgspec

from libcalico import names
from libcalico.conversion import limit_annotations
from libcalico.model import IPNAT, Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.resources.endpoint import WorkloadEndpointPort

PREFIX = "cni.projectcalico.org/"
CONTAINER, POD_IP, POD_IPS = (PREFIX + word for word in ("containerID", "podIP", "podIPs"))
FLOATING, SOURCES = PREFIX + "floatingIPs", PREFIX + "allowedSourcePrefixes"
AMAZON = "vpc.amazonaws.com/pod-ips"
COPIED = ("k8s.v1.cni.cncf.io/network-status",)
NAMESPACE_LABEL = "projectcalico.org/namespace"
ORCHESTRATOR_LABEL = "projectcalico.org/orchestrator"
ACCOUNT_LABEL = "projectcalico.org/serviceaccount"
MAX_LABEL = 63
Tree = Mapping[str, Any]


def is_endpoint(pod: Tree) -> bool:
    """Whether a pod is on the cluster's network, and on a node."""
    spec = pod.get("spec") or {}
    return bool(spec.get("nodeName")) and not spec.get("hostNetwork")


def attached(pod: Tree) -> tuple[str, str]:
    """Container and addresses that the plugin wrote; both empty when the pod is detached."""
    annotations = _annotations(pod)
    addresses = annotations.get(POD_IPS) or annotations.get(POD_IP) or ""
    return (annotations.get(CONTAINER, ""), addresses) if addresses else ("", "")


def workload(pod: Tree, shown: Tree) -> WorkloadEndpoint:
    """The endpoint of a pod that `is_endpoint`; `shown` is its metadata but for the labels."""
    meta, spec = pod.get("metadata") or {}, pod["spec"]
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    account = spec.get("serviceAccountName", "")
    labels = {
        **(meta.get("labels") or {}),
        NAMESPACE_LABEL: namespace,
        ORCHESTRATOR_LABEL: names.KUBERNETES,
    }
    profiles = [names.namespace_profile(namespace)]
    if account:
        profiles.append(names.service_account_profile(namespace, account))
        if len(account) < MAX_LABEL:
            labels[ACCOUNT_LABEL] = account
    annotations = _annotations(pod)
    metadata = msgspec.convert(
        {
            **shown,
            "generateName": meta.get("generateName", ""),
            "labels": dict(sorted(labels.items())),
            "annotations": {key: annotations[key] for key in COPIED if key in annotations},
        },
        Metadata,
    )
    addresses = _addresses(pod)
    return WorkloadEndpoint(
        metadata=metadata,
        spec=WorkloadEndpointSpec(
            orchestrator=names.KUBERNETES,
            node=spec["nodeName"],
            containerID=attached(pod)[0],
            pod=name,
            endpoint="eth0",
            serviceAccountName=account,
            ipNetworks=addresses,
            ipNATs=list(_translations(_texts(annotations.get(FLOATING)), addresses)),
            profiles=profiles,
            interfaceName=names.host_interface_name(namespace, name),
            ports=list(_ports(spec)),
            allowSpoofedSourcePrefixes=_texts(annotations.get(SOURCES)),
            qosControls=limit_annotations.asked(annotations).controls,
        ),
    )


def finished(pod: Tree) -> bool:
    """Whether another pod may have its addresses: it ended, or is detached and being deleted."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    annotations = _annotations(pod)
    deleted = (pod.get("metadata") or {}).get("deletionTimestamp")
    return bool(deleted) and POD_IP in annotations and not annotations[POD_IP]


def _annotations(pod: Tree) -> Mapping[str, str]:
    annotations = (pod.get("metadata") or {}).get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}


def _addresses(pod: Tree) -> list[str]:
    if finished(pod):
        return []
    status, annotations = pod.get("status") or {}, _annotations(pod)
    reported = [address.get("ip", "") for address in status.get("podIPs") or ()]
    choices = (
        reported,
        [status.get("podIP", "")],
        annotations.get(POD_IPS, "").split(","),
        [annotations.get(POD_IP, "")],
        annotations.get(AMAZON, "").split(","),
    )
    for texts in choices:
        if networks := [net for text in texts if (net := _network(text))]:
            return networks
    return []


def _network(text: str) -> str:
    with suppress(ValueError):
        return str(ip_network(ip_interface(text.strip()).ip))
    return ""


def _translations(floating: list[str], addresses: list[str]) -> Iterator[IPNAT]:
    for text in floating:
        with suppress(ValueError):
            version = ip_interface(text).version
            for own in addresses:
                if ip_network(own).version == version:
                    yield IPNAT(internalIP=own.partition("/")[0], externalIP=text)
                    break


def _ports(spec: Tree) -> Iterator[WorkloadEndpointPort]:
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for port in container.get("ports") or ():
            if port.get("name") or port.get("hostPort"):
                yield WorkloadEndpointPort(
                    name=port.get("name", ""),
                    protocol=port.get("protocol") or "TCP",
                    port=port.get("containerPort", 0),
                    hostPort=port.get("hostPort", 0),
                    hostIP=port.get("hostIP", ""),
                )


def _texts(text: str | None) -> list[str]:
    with suppress(ValueError):
        items = json.loads(text or "")
        if isinstance(items, list):
            return [item for item in items if isinstance(item, str)]
    return []
