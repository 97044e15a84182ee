"""What an attachment holds in the datastore, given back: by DEL, by the journal, by an undo.

The flows of an address are forgotten first; then one transaction takes address, handle and
endpoint. What an ADD of this process committed is cached, so that its DEL reads nothing: the guards
of the transaction prove the cached entry. Otherwise endpoint, siblings and handle are read at once.

Tested in tests/cni/test_delete.py, tests/cni/test_daemon_add.py and tests/cni/test_not_ours.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from cni.node.daemon_context import DaemonContext
from cni.pods.endpoint import is_of, recorded_addresses, remover
from cni.request.attachment import INTERFACE, Attachment
from cni.socket import call_log
from cni.veth import wiring
from ipam.allocator.requests import Release
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Entry, Selection
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.model.keys import Key
from libcalico.names import DEFAULT_INTERFACE_PREFIX
from linux.errors import KernelError

log = call_log.logger(__name__)


async def release(
    context: DaemonContext,
    attachment: Attachment,
    *,
    unwired: bool = False,
    policy_only: bool = False,
    forgot: Callable[[], None] = lambda: None,
) -> list[IPAddress]:
    """Give back in the datastore what the attachment holds; returns the addresses.

    `unwired`: its veth pair is removed already. `policy_only`: what `calico-ipam` gave to this
    interface is its own to give back. `forgot` is called when the flows of all addresses that its
    endpoint records are gone from the kernel. Raises DatastoreError, TimeoutError or
    Contention: the outcome is unknown then; InvalidValue or IPAMError if what is stored cannot be
    read.
    """
    try:
        key = attachment.endpoint_key
    except InvalidValue:
        return []  # no endpoint can have such a name, so no ADD of it ever succeeded
    cached = context.del_cache.pop(attachment)
    if context.cluster.locked:
        raise DatastoreUnavailable("ClusterInformation default says datastoreReady false")
    released: list[IPAddress] = []
    alone = context.records.without_others  # an operator may have deleted what is cached
    async with asyncio.timeout(context.settings.release_seconds):
        if cached is not None:
            if await forget_flows(context, alone(cached.addresses, attachment)):
                forgot()
            granted = await context.allocator.perform(
                Release(
                    attachment.handle_id,
                    companion=remover(attachment),
                    only=cached.addresses,
                    known=cached.entries,
                )
            )
            released += granted.addresses
            handle_key = attachment.handle_key
            if handle_key in granted.entries and granted.entries[handle_key] is None:
                return released
            # The handle holds more: another interface's addresses, or a leak. Look closely.
        siblings, known = await _read(context, attachment)
        own = next((entry for entry in siblings if entry.key == key), None)
        spared = {
            address
            for entry in siblings
            if entry.key != key
            for address in recorded_addresses(entry, attachment)
        }
        if not unwired:
            await _remove_recorded_veth(context, attachment, own)
        if await forget_flows(context, alone(recorded_addresses(own, attachment), attachment)):
            forgot()
        own_only = {INTERFACE: "" if policy_only else attachment.ifname}
        rest = Release(
            attachment.handle_id, frozenset(spared), remover(attachment), None, own_only, known
        )
        granted = await context.allocator.perform(rest)
    return released + list(granted.addresses)


async def _read(
    context: DaemonContext, attachment: Attachment
) -> tuple[list[Entry], dict[Key, Entry | None]]:
    """The endpoints of all interfaces of this pod or container, and endpoint and handle."""
    selection = Selection(
        "WorkloadEndpoint",
        namespace=attachment.namespace,
        name_prefix=attachment.sibling_prefix,
    )
    listing, known = await asyncio.gather(
        context.store.list(selection),
        context.store.get_many([attachment.endpoint_key, attachment.handle_key]),
    )
    return listing.entries, known


async def _remove_recorded_veth(
    context: DaemonContext, attachment: Attachment, own: Entry | None
) -> None:
    """Remove a veth pair without our mark that the datastore records as this container's.

    Another release made it.

    A host interface of another name was made by another plugin of the chain, and is its own.
    """
    if own is None or not is_of(own, attachment):
        return
    name = own.value.spec.interfaceName or ""
    if not name.startswith(DEFAULT_INTERFACE_PREFIX):
        return
    try:
        await context.in_thread(lambda: wiring.remove(name, attachment.mark, unmarked=True))
    except (KernelError, ValueError) as error:
        log.warning("a recorded host interface stays: %s", error)


async def forget_flows(context: DaemonContext, addresses: Iterable[IPAddress]) -> bool:
    """Remove the connections of released addresses from the kernel's tracking; whether it did."""
    gone = list(addresses)
    if not gone:
        return False
    try:
        await context.flows.forget(gone)
    except (KernelError, OSError) as error:
        # Old flows time out by themselves; the address must not stay taken for them.
        log.warning("flows of %s stay: %s", ", ".join(map(str, gone)), error)
        return False
    return True
