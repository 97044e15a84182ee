"""What there is of an attachment: in the container, on the host, and in the datastore.

CHECK compares it with what ADD promised (`cni.verbs.comparison`). Tested in
tests/cni/test_check.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cni.node.daemon_context import DaemonContext
from cni.request.attachment import Attachment
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from libcalico.errors import DatastoreUnavailable
from libcalico.model import WorkloadEndpoint
from libcalico.model.keys import Key
from linux import addresses, links, neighbours, routes
from linux.addresses import Address
from linux.links import Link
from linux.neighbours import Neighbour
from linux.netlink import Socket
from linux.routes import Route

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodSide:
    """The container's end: `link` is CNI_IFNAME, `veths` the indexes of all its veth ends."""

    link: Link | None = None
    veths: frozenset[int] = frozenset()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class HostSide:
    """The host's end, and the route by which the host reaches each address."""

    link: Link | None = None
    routes: Mapping[IPAddress, Route | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the datastore has: the pod's endpoint, and what this attachment's handle holds."""

    endpoint: WorkloadEndpoint | None = None
    addresses: frozenset[IPAddress] = frozenset()


def pod_side(pod: Socket, ifname: str) -> PodSide:
    """The container's end, read through a socket inside. Raises KernelError."""
    pod_links = links.by_name(links.dump(pod))
    link = pod_links.get(ifname)
    if link is None:
        return PodSide()
    return PodSide(
        link,
        frozenset(each.index for each in pod_links.values() if each.kind == "veth"),
        tuple(addresses.dump(pod, link.index)),
        tuple(routes.dump(pod)),
        tuple(neighbours.dump(pod, index=link.index)),
    )


def host_side(host: Socket, name: str, ips: Iterable[IPAddress]) -> HostSide:
    """The host's end `name`, and the routes to its addresses. Raises KernelError."""
    return HostSide(links.get(host, name), {ip: routes.lookup(host, ip) for ip in ips})


async def read_stored(
    context: DaemonContext, attachment: Attachment, until: float
) -> Stored | None:
    """What the datastore has of an attachment; None if it does not answer in time."""
    key, handle_key = attachment.endpoint_key, attachment.handle_key
    try:
        async with asyncio.timeout_at(until):
            entries = await context.store.get_many([key, handle_key])
            handle = entries[handle_key]
            block_keys: list[Key] = [*handles.block_keys(handle.value)] if handle else []
            stored = await context.store.get_many(block_keys) if block_keys else {}
    except (DatastoreUnavailable, TimeoutError) as error:
        log.info("the datastore could not be compared: %s", str(error) or "timeout")
        return None
    endpoint = entries[key]
    value: WorkloadEndpoint | None = endpoint.value if endpoint else None
    addresses = frozenset(
        allocation.address
        for entry in stored.values()
        if entry is not None
        for allocation in blocks.allocations(entry.value)
        if allocation.handle_id == attachment.handle_id
    )
    return Stored(value, addresses)


def remains(expected_mark: str, host: HostSide, stored: Stored, container_id: str) -> list[str]:
    """What is still held for a container whose own end is gone; nothing means: unknown (ERR-06)."""
    remaining = []
    if host.link is not None and host.link.alias == expected_mark:
        remaining.append(f"host interface {host.link.name}")
    if stored.endpoint is not None and stored.endpoint.spec.containerID == container_id:
        remaining.append(f"WorkloadEndpoint {stored.endpoint.metadata.name}")
    remaining += [f"address {address}" for address in sorted(stored.addresses, key=str)]
    return remaining
