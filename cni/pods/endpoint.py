"""The WorkloadEndpoint of an attachment: how it is written, kept and removed.

Pure. The endpoint travels with the addresses in one transaction as the allocator's companion
(`ipam.allocator.requests.Companion`), guarded by what was there before.

Invariants (tests/cni/test_attachment.py):
  CNI-12  An endpoint of another container of the same pod is overwritten by ADD (a new
          sandbox) and left alone by DEL (an old one): it belongs to the newest container.
  CNI-13  An existing endpoint keeps its uid and creation time.

Source: docs/reference/data-model.md#labels-and-profiles-of-pods, #add-of-a-pod,
#other-orchestrators-and-del; conformance CAL-13, CAL-14, CAL-24.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cni.pods.endpoint_requests import NOTHING, EndpointRequest, translations
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment
from ipam.allocator.requests import Companion
from ipam.records.blocks import IPAddress
from ipam.records.endpoints import addresses_of
from libcalico import names
from libcalico.datastore.interface import ABSENT, Change, Delete, Entry, Put
from libcalico.model import IPNAT, Metadata, WorkloadEndpoint, WorkloadEndpointSpec, stamp
from libcalico.model.codec import encode_value

NAMESPACE_LABEL = "projectcalico.org/namespace"
ORCHESTRATOR_LABEL = "projectcalico.org/orchestrator"
SERVICE_ACCOUNT_LABEL = "projectcalico.org/serviceaccount"
MAX_LABEL = 63
NETWORK_ANNOTATION = "cni.projectcalico.org/network"
"""The CNI network of an endpoint whose addresses are not our pools': no handle names it (GC)."""


class EndpointWriter:
    """The endpoint that one ADD writes; `written` is its latest form."""

    def __init__(
        self,
        attachment: Attachment,
        facts: PodFacts,
        mac: str,
        requested: EndpointRequest = NOTHING,
        interface: str = "",
    ) -> None:
        self._interface = interface
        self.tells_network = bool(interface)
        """Whether the endpoint names its network: no handle of ours does so then (GC)."""
        self.attachment, self._facts, self._mac = attachment, facts, mac
        self._requested = requested
        self.key = attachment.endpoint_key
        # One uid and time for all attempts, so that what felix was offered is what is stored.
        self._fresh = stamp(WorkloadEndpoint(metadata=Metadata()))
        self.written: Put | None = None

    def companion(self) -> Companion:
        """The endpoint as the allocator writes it with the addresses."""
        return Companion(self.key, self.change, self.recorded)

    def recorded(self, current: Entry | None) -> Sequence[IPAddress]:
        """The addresses that the stored endpoint records for this very container."""
        return recorded_addresses(current, self.attachment)

    def change(self, current: Entry | None, addresses: Sequence[IPAddress]) -> Change:
        """Write the endpoint over what is there, or create it."""
        before: WorkloadEndpoint = current.value if current else self._fresh
        endpoint = build(
            self.attachment, self._facts, self._mac, addresses, before.metadata, self._requested
        )
        if self._interface:
            endpoint = _at(endpoint, self._interface)
        endpoint = _in(endpoint, self.attachment.network if self.tells_network else "")
        guard = current.revision if current else ABSENT
        self.written = Put(self.key, endpoint, guard, current)
        return self.written

    def stored_bytes(self) -> bytes:
        """The exact bytes that the last `change` stores."""
        assert self.written is not None
        base = self.written.base
        return encode_value(self.key, self.written.value, base.raw if base else None)


def build(
    attachment: Attachment,
    facts: PodFacts,
    mac: str,
    addresses: Sequence[IPAddress],
    before: Metadata,
    requested: EndpointRequest = NOTHING,
) -> WorkloadEndpoint:
    """The endpoint; `before` supplies uid, creation time and annotations of others.

    Raises CNIError for a floating address of a family that is not among `addresses`.
    """
    kubernetes = bool(attachment.pod)
    labels = {
        **facts.labels,
        NAMESPACE_LABEL: attachment.namespace,
        ORCHESTRATOR_LABEL: attachment.orchestrator,
    }
    profiles = [attachment.network]
    account = ""
    if kubernetes:
        account = facts.service_account
        if len(account) < MAX_LABEL:
            labels[SERVICE_ACCOUNT_LABEL] = account
        profiles = [
            names.namespace_profile(attachment.namespace),
            names.service_account_profile(attachment.namespace, account),
        ]
    key = attachment.endpoint_key
    return WorkloadEndpoint(
        metadata=msgspec.structs.replace(
            before,
            name=key.name,
            generateName=facts.generate_name,
            namespace=key.namespace,
            labels=dict(sorted(labels.items())),
        ),
        spec=WorkloadEndpointSpec(
            orchestrator=attachment.orchestrator,
            node=attachment.node,
            containerID=attachment.container_id,
            pod=attachment.pod,
            endpoint=attachment.ifname,
            serviceAccountName=account,
            ipNetworks=[f"{address}/{address.max_prefixlen}" for address in addresses],
            profiles=profiles,
            interfaceName=attachment.host_interface,
            mac=mac,
            ports=list(facts.ports),
            ipNATs=[
                IPNAT(internalIP=str(own), externalIP=str(floating))
                for floating, own in translations(requested.floating, addresses)
            ],
            allowSpoofedSourcePrefixes=list(requested.sources),
            qosControls=requested.controls,
        ),
    )


def _at(endpoint: WorkloadEndpoint, interface: str) -> WorkloadEndpoint:
    """The endpoint of an interface that another plugin made."""
    spec = msgspec.structs.replace(endpoint.spec, interfaceName=interface)
    return msgspec.structs.replace(endpoint, spec=spec)


def _in(endpoint: WorkloadEndpoint, network: str) -> WorkloadEndpoint:
    """Write the network into an endpoint, or remove an older sandbox's: that GC is not about it."""
    before = endpoint.metadata.annotations or {}
    if before.get(NETWORK_ANNOTATION, "") == network:
        return endpoint
    annotations = {key: value for key, value in before.items() if key != NETWORK_ANNOTATION}
    if network:
        annotations[NETWORK_ANNOTATION] = network
    metadata = msgspec.structs.replace(endpoint.metadata, annotations=annotations or None)
    return msgspec.structs.replace(endpoint, metadata=metadata)


def remover(attachment: Attachment) -> Companion:
    """The companion of a DEL: removes the endpoint if it is this container's (CNI-12)."""

    def change(current: Entry | None, _addresses: Sequence[IPAddress]) -> Change | None:
        if current is None or not is_of(current, attachment):
            return None
        return Delete(current.key, current.revision)

    return Companion(attachment.endpoint_key, change)


def is_of(entry: Entry, attachment: Attachment) -> bool:
    """Whether a stored endpoint belongs to this container."""
    return bool(entry.value.spec.containerID == attachment.container_id)


def recorded_addresses(entry: Entry | None, attachment: Attachment) -> list[IPAddress]:
    """The addresses of a stored endpoint, if it belongs to this container."""
    if entry is None or not is_of(entry, attachment):
        return []
    return addresses_of(entry)
