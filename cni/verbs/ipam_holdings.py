"""The addresses of one interface under `calico-ipam`, as the datastore records them.

Calico's handle is shared by all interfaces of a container in a network. The allocation's attributes
say which interface has an address (CNI-81). Tested in tests/cni/test_ipam_plugin.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from cni.node.daemon_context import DaemonContext
from cni.request.attachment import INTERFACE, Attachment
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Entry
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
    read_keys: list[Key] = [HandleKey(handle_id) for handle_id in handle_ids]
    with suppress(InvalidValue):
        read_keys.append(attachment.endpoint_key)
    entries = await context.store.get_many(read_keys)
    recorded: set[str] = set()
    keys: set[Key] = set()
    for key, entry in entries.items():
        if entry is None:
            continue
        if isinstance(key, HandleKey):
            keys |= set(handles.block_keys(entry.value))
        elif entry.value.spec.containerID == attachment.container_id:
            recorded = {text.partition("/")[0] for text in entry.value.spec.ipNetworks}
    stored = await context.store.get_many(sorted(keys, key=str)) if keys else {}
    by_handle = {
        handle_id: _of_handle(attachment, handle_id, stored, recorded) for handle_id in handle_ids
    }
    return Holdings(
        {handle_id: addresses for handle_id, addresses in by_handle.items() if addresses}
    )


def _of_handle(
    attachment: Attachment, handle_id: str, stored: Mapping[Key, Entry | None], recorded: set[str]
) -> tuple[IPAddress, ...]:
    """The addresses of one handle that are this interface's, on this node (CNI-81)."""
    return tuple(
        allocation.address
        for entry in stored.values()
        if entry is not None
        for allocation in blocks.allocations(entry.value)
        if allocation.handle_id == handle_id
        and allocation.attributes.get("node", attachment.node) == attachment.node
        and allocation.attributes.get(INTERFACE, attachment.ifname) == attachment.ifname
        and str(allocation.address) not in recorded
    )
