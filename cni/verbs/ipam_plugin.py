"""`calico-ipam` under another main plugin (bridge, ptp, macvlan): addresses and nothing else.

No namespace is touched and no endpoint is written. The handle is Calico's, shared by all
interfaces of the container in the network; which interface has an address stands beside it in
the allocation's attributes, so that a DEL of one interface leaves the other's alone.

Invariants (tests/cni/test_ipam_plugin.py):
  CNI-80  A repeated ADD of one interface keeps its addresses; a failed one leaves none.
  CNI-81  DEL releases the addresses of this interface only, and never what an endpoint of this
          container records: those are the main plugin's `calico`.
  CNI-83  What an operator deletes of a running container's addresses is put back
          (cni.server.restore),
          and given to no other attachment of the node meanwhile (CNI-100).
  CNI-82  An address that the pools chose is printed with its block's prefix length, one that
          was asked for as /32 or /128.

Source: docs/reference/cni.md#calico-ipam.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_interface, ip_network

from cni.node.daemon_context import DaemonContext, check_node_name, require_known_node
from cni.node.records import Record, inode_of
from cni.pods.pod_requests import AddressRequest, address_request
from cni.request.attachment import INTERFACE, Attachment, attachment_of
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import IPConfig, Result
from cni.request.result_decoding import decode
from cni.socket.trace import Trace
from cni.verbs.datastore_release import forget_flows
from cni.verbs.delete import remember
from cni.verbs.failures import as_cni_error
from cni.verbs.ipam_holdings import Holdings, holdings
from cni.veth.pod_end import GATEWAYS
from ipam.allocator.requests import Allocate, Release
from ipam.allocator.service import PendingRequest
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError
from ipam.records.naming import pod_attributes
from ipam.records.pools import containing
from libcalico.errors import DatastoreUnavailable, InvalidValue, MuslinError


async def add(context: DaemonContext, request: Request, trace: Trace, seconds: float) -> Result:
    """Serve one ADD within `seconds`; raises CNIError with nothing left (CNI-80)."""
    attachment = attachment_of(request, context.node)
    tickets: list[PendingRequest] = []
    limit = min(seconds, context.settings.datastore_seconds)
    try:
        try:
            async with asyncio.timeout(limit):
                return await _add(context, request, attachment, trace, tickets)
        except BaseException:
            await asyncio.shield(context.keep(_undo(context, request, attachment, tickets)))
            raise
    except (MuslinError, TimeoutError, OSError) as error:
        raise as_cni_error(error) from error


async def _add(
    context: DaemonContext,
    request: Request,
    attachment: Attachment,
    trace: Trace,
    tickets: list[PendingRequest],
) -> Result:
    check_node_name(request.config.document, context.settings, context.node)
    await require_known_node(context, request.config.document)
    facts = await context.pod_source.facts(request)
    addressing = address_request(request, facts)
    trace.mark("names")
    holding = await holdings(context, attachment)
    addresses = holding.all
    if addresses and (context.journal.holds(request) or not _serve(addresses, addressing)):
        await _release(context, holding)
        addresses = ()
    trace.mark("plan")
    if not addresses:
        attributes = pod_attributes(
            attachment.node, attachment.namespace, attachment.pod, time.time_ns()
        )
        ticket = context.allocator.submit(
            Allocate(
                handle_id=attachment.handle_id,
                attributes=dict(sorted({**attributes, INTERFACE: attachment.ifname}.items())),
                families=addressing.families,
                requested=addressing.pools,
                fixed=addressing.fixed,
                namespace=attachment.namespace if attachment.pod else "",
            )
        )
        tickets.append(ticket)
        addresses = (await asyncio.shield(ticket.done)).addresses
    context.records.refuse_taken(addresses, attachment)
    trace.mark("commit")
    context.journal.drop(request)
    _remember(context, request, attachment, addresses)
    gateways = GATEWAYS if request.config.type == "ptp" else {}
    return Result(ips=tuple(_printed(context, each, addressing, gateways) for each in addresses))


def _remember(
    context: DaemonContext,
    request: Request,
    attachment: Attachment,
    addresses: Sequence[IPAddress],
) -> None:
    """For what an operator may delete of it while it runs (cni.node.records).

    Where the namespace cannot be seen from here nothing would say when it is gone.
    """
    netns = request.env.get("CNI_NETNS", "")
    inode = inode_of(netns) if netns else ""
    with suppress(InvalidValue):
        if inode and attachment.endpoint_key:
            record = Record(attachment, "", tuple(addresses), None, netns, inode)
            context.records.remember(record)


async def delete(context: DaemonContext, request: Request, trace: Trace) -> None:
    """Serve one DEL; what cannot be released now is remembered in the journal."""
    attachment = attachment_of(request, context.node)
    try:
        await release(context, attachment)
    except Exception as error:  # noqa: BLE001 - for the journal, which tries again
        trace.mark("commit")
        await remember(context, request, [error])
        return
    trace.mark("commit")
    context.journal.released(request)


async def release(context: DaemonContext, attachment: Attachment) -> None:
    """Release the addresses of this interface; raises where that is not certain."""
    context.records.drop(attachment)
    if context.cluster.locked:
        raise DatastoreUnavailable("ClusterInformation default says datastoreReady false")
    async with asyncio.timeout(context.settings.release_seconds):
        await _release(context, await holdings(context, attachment))


async def check(context: DaemonContext, request: Request, trace: Trace, seconds: float) -> None:
    """Serve one CHECK: each address of prevResult is allocated to this interface (CHK-06)."""
    if request.config.prev_result is None:
        raise CNIError(Code.INVALID_CONFIG, "Required prevResult missing")
    attachment = attachment_of(request, context.node)
    expected = _expected(request)
    try:
        async with asyncio.timeout(min(context.settings.check_seconds, seconds)):
            addresses = (await holdings(context, attachment)).all
    except (MuslinError, TimeoutError, OSError) as error:
        raise as_cni_error(error) from error
    trace.mark("datastore")
    if not addresses:
        raise CNIError(
            Code.UNKNOWN_CONTAINER,
            f"container {request.container_id} is unknown: no address is held for "
            f"its interface {request.ifname}",
        )
    for address in expected:
        if address not in addresses:
            raise CNIError(
                Code.CALICO,
                f"CHECK of {attachment}: address {address} is not allocated to this interface",
                "allocated: " + ", ".join(map(str, addresses)),
            )


def _serve(addresses: Sequence[IPAddress], requested: AddressRequest) -> bool:
    """Whether the held addresses satisfy the request."""
    if requested.fixed:
        return set(addresses) == set(requested.fixed)
    return sorted(address.version for address in addresses) == sorted(requested.families)


def _printed(
    context: DaemonContext,
    address: IPAddress,
    requested: AddressRequest,
    gateways: Mapping[int, IPAddress],
) -> IPConfig:
    """The address with its prefix length (CNI-82).

    A gateway only for ptp: it puts that address on the host's end, and fails without one.
    """
    facts = context.cluster.facts(context.node)
    pool = containing(facts.pools, ip_network(address)) if facts else None
    if requested.fixed or pool is None:
        return IPConfig(ip_interface(ip_network(address)), gateways.get(address.version))
    return IPConfig(ip_interface(f"{address}/{pool.block_size}"), gateways.get(address.version))


def _expected(request: Request) -> list[IPAddress]:
    assert request.config.prev_result is not None
    try:
        result = decode(request.config.prev_result, request.config.version)
    except CNIError as error:
        reason = error.msg.removeprefix("could not parse a CNI result: ")
        raise CNIError(error.code, f"could not parse prevResult: {reason}") from error
    own = {
        index
        for index, link in enumerate(result.interfaces)
        if link.name == request.ifname and link.sandbox
    }
    addresses = [ip.address.ip for ip in result.ips if ip.interface is None or ip.interface in own]
    if not addresses:
        raise CNIError(
            Code.INVALID_CONFIG, f"prevResult lists no address of interface {request.ifname}"
        )
    return addresses


async def _release(context: DaemonContext, holding: Holdings) -> None:
    await forget_flows(context, holding.all)
    for handle_id, addresses in holding.addresses.items():
        await context.allocator.perform(Release(handle_id, only=frozenset(addresses)))


async def _undo(
    context: DaemonContext,
    request: Request,
    attachment: Attachment,
    tickets: Sequence[PendingRequest],
) -> None:
    """Take back what this call was granted; never raises."""
    for ticket in tickets:
        if not ticket.started:
            ticket.abandon()
            continue
        try:
            async with asyncio.timeout(context.settings.release_seconds):
                granted = await asyncio.shield(ticket.done)
                only = frozenset(granted.addresses)
                await context.allocator.perform(Release(attachment.handle_id, only=only))
        except IPAMError:
            continue  # refused: there is nothing to give back
        except Exception as error:  # noqa: BLE001 - for the journal, which tries again
            with suppress(CNIError):
                await remember(context, request, [error])
