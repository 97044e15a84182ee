"""The addresses of one interface under `calico-ipam`, as the datastore records them.

Calico's handle is shared by all interfaces of a container in a network. The allocation's attributes
say which interface has an address (CNI-81). Tested in tests/cni/test_ipam_plugin.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cni.node.daemon_context import DaemonContext
from cni.pods.endpoint import recorded_addresses
from cni.request.attachment import INTERFACE, Attachment
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Selection
from libcalico.errors import InvalidValue
from libcalico.model.keys import HandleKey, Key


@dataclass(frozen=True, slots=True)
class Holdings:
    """The addresses of one interface, by handle: its own, and those of Calico's old releases."""

    addresses: Mapping[str, tuple[IPAddress, ...]]

    @property
    def all(self) -> tuple[IPAddress, ...]:
        """All addresses, IPv4 first."""
        every = [address for each in self.addresses.values() for address in each]
        return tuple(sorted(every, key=lambda address: (address.version, int(address))))


async def holdings(context: DaemonContext, attachment: Attachment) -> Holdings:
    """Read the addresses of this interface. Raises DatastoreError or TimeoutError."""
    legacy = f"{attachment.namespace}.{attachment.pod}" if attachment.pod else ""
    handle_ids = [attachment.handle_id, legacy or attachment.container_id]
    entries = await context.store.get_many([HandleKey(handle_id) for handle_id in handle_ids])
    keys: set[Key] = set()
    for entry in entries.values():
        keys |= set(handles.block_keys(entry.value)) if entry else set()
    stored = await context.store.get_many(sorted(keys, key=str)) if keys else {}
    here = [
        allocation
        for entry in stored.values()
        if entry is not None
        for allocation in blocks.allocations(entry.value)
        if allocation.handle_id in handle_ids
        and allocation.attributes.get("node", attachment.node) == attachment.node
        and allocation.attributes.get(INTERFACE, attachment.ifname) == attachment.ifname
    ]
    recorded: set[IPAddress] = set()
    if any(INTERFACE not in allocation.attributes for allocation in here):
        recorded = await _recorded(context, attachment)
    by_handle: dict[str, tuple[IPAddress, ...]] = {}
    for one in here:
        if INTERFACE in one.attributes or one.address not in recorded:
            by_handle[one.handle_id] = (*by_handle.get(one.handle_id, ()), one.address)
    return Holdings(by_handle)


async def _recorded(context: DaemonContext, attachment: Attachment) -> set[IPAddress]:
    """What endpoints of this container record, of whichever interface: `calico` took those."""
    try:
        prefix = attachment.sibling_prefix
    except InvalidValue:
        return set()
    selection = Selection("WorkloadEndpoint", namespace=attachment.namespace, name_prefix=prefix)
    listing = await context.store.list(selection)
    return {one for entry in listing.entries for one in recorded_addresses(entry, attachment)}
