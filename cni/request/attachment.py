"""What one call is about: the attachment of one interface of one container to one network.

Every name that follows from the call is computed here and nowhere else: handle, endpoint,
host interface, and the mark that the host interface carries as proof of whose it is.

Invariants (tests/cni/test_attachment.py):
  CNI-10  Two interfaces of one pod have two host interfaces: `eth0` gets Calico's name, any
          other is hashed with its own name.
  CNI-11  A host interface is removed only if its mark names this container and interface, or
          the datastore recorded it for this container (DEL-19).

Source: docs/reference/data-model.md#endpoint-names, #interface-names, #attributes-and-handles;
conformance CAL-01.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from cni.request.errors import CNIError, Code
from cni.request.request import Request
from libcalico import names
from libcalico.errors import InvalidValue
from libcalico.model.keys import HandleKey, ResourceKey

FIRST_INTERFACE = "eth0"
DEFAULT_NAMESPACE = "default"
INTERFACE = "interface"
"""The attribute of an allocation under another main plugin that names CNI_IFNAME."""


@dataclass(frozen=True)
class Attachment:
    """Identity of an attachment on this node. `pod` is empty outside Kubernetes."""

    node: str
    network: str
    container_id: str
    ifname: str
    namespace: str
    pod: str

    @property
    def orchestrator(self) -> str:
        """`k8s` when the runtime named a pod, else `cni`."""
        return names.KUBERNETES if self.pod else names.CNI

    @cached_property
    def handle_id(self) -> str:
        """The IPAM handle, shared by all interfaces of the container in this network."""
        return names.handle_id(self.network, self.container_id)

    @property
    def handle_key(self) -> HandleKey:
        """The key of the handle."""
        return HandleKey(self.handle_id)

    @cached_property
    def endpoint_key(self) -> ResourceKey:
        """The key of the WorkloadEndpoint. Raises InvalidValue for names that have none."""
        workload = self.pod or self.container_id
        name = names.workload_endpoint_name(self.node, self.orchestrator, workload, self.ifname)
        return ResourceKey("WorkloadEndpoint", name, self.namespace)

    @property
    def sibling_prefix(self) -> str:
        """What the names of all interfaces of this pod or container begin with."""
        workload = self.pod or self.container_id
        return names.workload_endpoint_prefix(self.node, self.orchestrator, workload)

    @cached_property
    def host_interface(self) -> str:
        """The name of the host's end (CNI-10)."""
        first = self.ifname == FIRST_INTERFACE
        if self.pod:
            # "/" cannot stand in a pod's name, so no other pod has this name.
            pod = self.pod if first else f"{self.pod}/{self.ifname}"
            return names.host_interface_name(self.namespace, pod)
        if first:
            return names.host_interface_name_cni(self.container_id)
        text = f"{self.container_id}/{self.ifname}".encode()
        return names.host_interface_name_cni(hashlib.sha1(text, usedforsecurity=False).hexdigest())

    @property
    def mark(self) -> str:
        """The alias that the host interface carries: container id and interface."""
        return f"{self.container_id}/{self.ifname}"

    def __str__(self) -> str:
        workload = f"{self.namespace}/{self.pod}" if self.pod else self.container_id
        return f"{workload} {self.ifname}"


def attachment_of(request: Request, node: str) -> Attachment:
    """The attachment that a request names, on node `node`."""
    namespace, pod = request.pod or (DEFAULT_NAMESPACE, "")
    return Attachment(
        node, request.config.name, request.container_id, request.ifname, namespace, pod
    )


def check_endpoint_name(attachment: Attachment) -> None:
    """Raise CNIError 4 if no endpoint can have this name (a part begins or ends with `-`)."""
    try:
        str(attachment.endpoint_key)
    except InvalidValue as error:
        problem = InvalidValue(error.field, error.value, error.rule, str(attachment))
        raise CNIError(Code.INVALID_ENVIRONMENT, str(problem)) from error
