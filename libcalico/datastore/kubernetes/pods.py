"""WorkloadEndpoints: each pod of the cluster's network is one.

What the pod itself says becomes the endpoint (libcalico/conversion/pods.py); what only the
plugin knows, container and addresses, is written into annotations of the pod. An endpoint so
exists from the moment the pod has a node: `ABSENT` means that no container has been attached,
and a guard holds while the attached container is the same, though the kubelet writes meanwhile.
Source: docs/reference/data-model.md#kubernetes-datastore, #add-of-a-pod,
#other-orchestrators-and-del. Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from contextlib import suppress

from libcalico import names
from libcalico.conversion.pods import CONTAINER, POD_IP, POD_IPS, attached, is_endpoint, workload
from libcalico.datastore.interface import Change, Delete, Entry, Put, Selection
from libcalico.datastore.kubernetes.fields import POD
from libcalico.datastore.kubernetes.mapping import Asked, Collection, Place, metadata
from libcalico.datastore.kubernetes.metadata import Tree, native_metadata
from libcalico.errors import DatastoreError, InvalidValue
from libcalico.model import codec
from libcalico.model.keys import Key, ResourceKey

FIRST_INTERFACE = "eth0"
BOUND = "spec.nodeName!="
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class Pods:
    """`WorkloadEndpoint` is a pod."""

    collection = Collection("v1", "pods", "Pod", namespaced=True, fields=POD)

    def place(self, key: Key) -> Place | None:
        """The pod, if the endpoint is its first interface."""
        assert isinstance(key, ResourceKey)
        with suppress(InvalidValue):
            parts = names.parse(key.name)
            if parts.orchestrator == names.KUBERNETES and parts.endpoint == FIRST_INTERFACE:
                return Place(parts.workload, key.namespace)
        return None

    def key(self, tree: Tree) -> Key | None:
        """The key by node and pod; None for a pod without a node, or on the host's network."""
        if not is_endpoint(tree):
            return None
        meta, node = metadata(tree), tree["spec"]["nodeName"]
        name = names.workload_endpoint_name(
            node, names.KUBERNETES, meta.get("name", ""), FIRST_INTERFACE
        )
        return ResourceKey("WorkloadEndpoint", name, meta.get("namespace", ""))

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The v3 form of the pod."""
        assert isinstance(key, ResourceKey)
        meta = native_metadata(tree, key.name, key.namespace)
        return codec.encode_value(key, workload(tree, meta))

    def asked(self, selection: Selection) -> Asked:
        """Ask for the pods of one node, or for one pod where the name's prefix tells which.

        Of all pods those that have a node: of another one nothing is told, not even its changes.
        """
        parts = selection.name_prefix.replace("--", "\0").split("-")
        words = [part.replace("\0", "-") for part in parts]
        if len(words) < 2 or "\0" in parts[-1]:
            fields = f"{BOUND},{NOT_ENDED}" if selection.live else BOUND
            return Asked(selection.namespace, {"fieldSelector": fields})
        if len(words) > 3 and selection.namespace:
            return Asked(selection.namespace, {"fieldSelector": f"metadata.name={words[2]}"})
        return Asked(selection.namespace, {"fieldSelector": f"spec.nodeName={words[0]}"})

    def annotations(self, change: Change, before: Tree) -> dict[str, str | None]:
        """The annotations of the attachment; a detached pod keeps its container alone."""
        if not isinstance(change, Put):
            return {POD_IP: "", POD_IPS: ""} if any(attached(before)) else {}
        spec = change.value.spec
        if not is_endpoint(before) or before["spec"]["nodeName"] != spec.node:
            raise InvalidValue(
                "spec.node", spec.node, "the pod is on another node", f"{change.key}"
            )
        addresses = list(spec.ipNetworks)
        return {
            CONTAINER: spec.containerID,
            POD_IP: addresses[0] if addresses else "",
            POD_IPS: ",".join(addresses),
        }

    def stands(self, change: Change, seen: Entry | None, before: Tree) -> bool:
        """Whether the attachment is still the one that was read, of the same pod."""
        if change.guard == 0:
            return not any(attached(before))
        if seen is None or seen.value is None:
            return False
        return bool(attached(before)[0] == seen.value.spec.containerID)

    def absent(self, change: Change) -> Exception | None:
        """The error for a pod that is gone: it needs no detaching, and cannot be attached."""
        if isinstance(change, Delete):
            return None
        if self.place(change.key) is None:
            return DatastoreError(
                f"{change.key} cannot be stored: with the Kubernetes datastore an endpoint is the"
                " interface eth0 of a pod"
            )
        return InvalidValue(
            "metadata.name", str(change.key), "the pod does not exist any more", f"{change.key}"
        )
