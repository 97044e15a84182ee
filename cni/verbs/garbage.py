"""CNI GC: the runtime says which attachments of a network live, the rest is removed.

Removed are host interface, addresses and endpoint of each attachment of this network on this
node that the list lacks. A container that calls after the GC began is left alone, on the list or
not. Tunnel addresses, other networks, other nodes and what no CNI plugin made are out of
reach: an address counts only under a handle `<network>.<container>` of this node.

Invariants (tests/cni/test_garbage.py):
  CNI-85  An attachment is kept if container and interface are on the list (an entry without
          interface keeps all of its container), if its container has a call since the GC began, or
          if it cannot be said which attachment it is.
  CNI-86  One failure does not stop the others; the error names all, and so does it what was
          changed meanwhile and stays.

Source: docs/reference/cni.md#gc.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cni.node.daemon_context import DaemonContext
from cni.node.felix_client import Subject
from cni.node.own_machine import why_foreign
from cni.pods.endpoint import NETWORK_ANNOTATION
from cni.request.attachment import INTERFACE
from cni.request.config import Attachment as Valid
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.socket.container_locks import Acquire
from cni.verbs.datastore_release import forget_flows
from cni.veth import wiring
from ipam.allocator.committer import settle
from ipam.allocator.view import View
from ipam.collector.collector import concerning
from ipam.collector.leak_evidence import Held, Suspect
from ipam.collector.release_plan import plan_release
from ipam.records import blocks
from ipam.records.block_editor import release_stamp
from ipam.records.blocks import Allocation
from libcalico import names
from libcalico.datastore.interface import Entry, Selection
from libcalico.errors import DatastoreError
from libcalico.model.keys import BlockKey, IPNetwork, Key, ResourceKey

log = logging.getLogger(__name__)

LOOKS = 3
"""How often an attachment that others change meanwhile is looked at."""


@dataclass(frozen=True, slots=True)
class Stale:
    """One attachment that the runtime's list lacks; `endpoint` None where there is none."""

    suspect: Suspect
    ifname: str
    endpoint: Entry | None = None

    def __str__(self) -> str:
        return f"{self.suspect.container_id} {self.ifname or '(interface unknown)'}"


async def collect(
    context: DaemonContext, container_lock: Acquire, called: Collection[str], request: Request
) -> None:
    """Serve our own part of one GC; `called` grows by each container that calls meanwhile.

    Raises CNIError after everything that could be removed is gone (CNI-86).
    """
    valid = request.config.valid_attachments
    if valid is None:
        log.warning("GC without a list of valid attachments: nothing is removed")
        return
    network = request.config.name
    await context.cluster.require_ready(context.settings.datastore_seconds)
    try:
        if why := await why_foreign(context, runtime=True):
            log.error("GC of network %s removes nothing: %s", network, why)
            return
        endpoints, allocations = await held_here(context)
    except (DatastoreError, TimeoutError) as error:
        raise CNIError(
            Code.TRY_AGAIN_LATER, f"GC of network {network}: the datastore does not answer"
        ) from error
    failed: list[tuple[Stale, Exception]] = []
    stale = find(network, context.node, endpoints, allocations, valid)
    for each in stale:
        container = each.suspect.container_id
        async with container_lock(container):
            if container in called:
                continue
            try:
                await _remove(context, each)
            except Exception as error:  # noqa: BLE001 - the others are collected; told at the end
                failed.append((each, error))
                continue
        log.warning(
            "attachment collected: the runtime's list lacks it",
            extra={"container": container, "interface": each.ifname, "network": network},
        )
    if failed:
        transient = all(_is_transient(error) for _, error in failed)
        raise CNIError(
            Code.TRY_AGAIN_LATER if transient else Code.CALICO,
            f"GC of network {network}: {len(failed)} of {len(stale)} attachments stay",
            "; ".join(f"{each}: {str(error) or type(error).__name__}" for each, error in failed),
        )


def _is_transient(error: Exception) -> bool:
    if isinstance(error, CNIError):
        return error.code == Code.TRY_AGAIN_LATER
    return isinstance(error, (DatastoreError, TimeoutError))


BlockAllocation = tuple[Allocation, IPNetwork]


async def held_here(context: DaemonContext) -> tuple[list[Entry], list[BlockAllocation]]:
    """This node's endpoints, and every allocation of handles that this node has a part in."""
    prefix = names.workload_endpoint_prefix(context.node)
    endpoints = (
        await context.store.list(Selection("WorkloadEndpoint", name_prefix=prefix))
    ).entries
    listing = await context.store.list(Selection("Block"))
    block_allocations: list[BlockAllocation] = []
    for entry in await concerning(context.node, listing.entries, endpoints):
        assert isinstance(entry.key, BlockKey)
        if not blocks.problem(entry.value):
            block_allocations += [
                (each, entry.key.cidr) for each in blocks.allocations(entry.value)
            ]
    return endpoints, block_allocations


def find(
    network: str,
    node: str,
    endpoints: Sequence[Entry],
    allocations: Iterable[BlockAllocation],
    valid: Sequence[Valid],
) -> list[Stale]:
    """The attachments of `network` on `node` that `valid` lacks (CNI-85). Pure."""
    listed = {(one.containerID, one.ifname) for one in valid}
    containers = {one.containerID for one in valid}
    own = {
        (entry.value.spec.containerID, entry.value.spec.endpoint): entry
        for entry in endpoints
        if entry.value.spec.node == node
        and entry.value.spec.containerID
        and entry.value.spec.orchestrator in (names.KUBERNETES, names.CNI)
    }
    recorded = {
        (container, text.partition("/")[0]): ifname
        for (container, ifname), entry in own.items()
        for text in entry.value.spec.ipNetworks
    }
    by_attachment: dict[tuple[str, str], list[Held]] = {}
    for allocation, cidr in allocations:
        container = _container(network, node, allocation)
        if not container:
            continue
        ifname = allocation.attributes.get(INTERFACE) or recorded.get(
            (container, str(allocation.address)), ""
        )
        by_attachment.setdefault((container, ifname), []).append(
            Held(allocation.address, allocation.sequence, cidr)
        )
    for (container, ifname), entry in own.items():
        if (entry.value.metadata.annotations or {}).get(NETWORK_ANNOTATION) == network:
            by_attachment.setdefault((container, ifname), [])
    stale = []
    for (container, ifname), addresses in sorted(by_attachment.items()):
        if (container, ifname) in listed or (container, "") in listed:
            continue
        if not ifname and container in containers:
            continue
        endpoint = own.get((container, ifname))
        recorded_here = [recorded.get((container, str(one.address))) for one in addresses]
        if endpoint is not None and addresses and ifname not in recorded_here:
            endpoint = None
        revisions: dict[Key, int] = {endpoint.key: endpoint.revision} if endpoint else {}
        suspect = Suspect(
            names.handle_id(network, container), container, frozenset(addresses), revisions, "GC"
        )
        stale.append(Stale(suspect, ifname, endpoint))
    return stale


def _container(network: str, node: str, allocation: Allocation) -> str:
    """The container of an allocation that a plugin made for this network and node, or "".

    Handles of the oldest releases (`<namespace>.<pod>`, or a container alone) name no network, so
    GC leaves their addresses: DEL gives them back (IPM-15), and the collector of leaks.
    """
    attributes = allocation.attributes
    prefix = f"{network}."
    if attributes.get("node") != node or "type" in attributes or allocation.sequence is None:
        return ""
    if any(key.startswith("vm") for key in attributes):
        return ""
    if not allocation.handle_id.startswith(prefix):
        return ""
    container = allocation.handle_id[len(prefix) :]
    # `a.b.c` may be container `b.c` of network `a` or `c` of `a.b`: both read alike.
    return "" if "." in container else container


async def _remove(context: DaemonContext, stale: Stale) -> None:
    suspect, endpoint = stale.suspect, stale.endpoint
    context.records.drop_interface(suspect.container_id, stale.ifname)
    if endpoint is not None and endpoint.value.spec.interfaceName:
        mark = f"{suspect.container_id}/{stale.ifname}"
        await context.in_thread(wiring.remove, endpoint.value.spec.interfaceName, mark)
    await forget_flows(context, sorted((item.address for item in suspect.allocations), key=str))
    facts = context.cluster.facts(context.node)
    cooldown = facts.config.ipCooldownSeconds if facts and facts.config else 0
    await _release(context, suspect, release_stamp(time.time_ns(), cooldown))
    if endpoint is not None:
        assert isinstance(endpoint.key, ResourceKey)
        context.felix.retract(
            Subject(endpoint.key.namespace, endpoint.key.name, suspect.container_id)
        )


async def _release(context: DaemonContext, suspect: Suspect, stamp: str) -> None:
    """Addresses and endpoint in one transaction; raises CNIError 11 where they are others'."""
    for _ in range(LOOKS):
        plan = partial(plan_release, suspect=suspect, released_at=stamp)
        if await settle(context.store, View(), plan):
            return
        # A label may have been written since: it is another version of the same endpoint.
        entries = await context.store.get_many(list(suspect.endpoints)) if suspect.endpoints else {}
        revisions = {
            key: entry.revision
            for key, entry in entries.items()
            if entry is not None and entry.value.spec.containerID == suspect.container_id
        }
        if not revisions and not suspect.allocations:
            return
        suspect = replace(suspect, endpoints=revisions)
    raise CNIError(Code.TRY_AGAIN_LATER, "it was changed meanwhile")
