"""Assign addresses in one call: what `ipam.admin.library` offers for assignment.

Source: docs/reference/data-model.md#automatic-assignment (AutoAssign), 4.6 (AssignIP). Tested in
tests/ipam/test_library.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface, ip_interface, ip_network

from ipam.allocator.facts import Facts, read_facts
from ipam.allocator.pending_requests import PendingRequest
from ipam.allocator.requests import Allocate
from ipam.allocator.worker import Worker
from ipam.records import blocks, pools
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError, NoNode, NoPool
from ipam.records.pools import SERVICE, WORKLOAD
from libcalico.datastore.interface import Datastore
from libcalico.model.keys import ResourceKey


@dataclass(frozen=True, slots=True)
class AssignRequest:
    """Some addresses for one handle.

    `pools4` and `pools6` name pools (name or CIDR) and override their selectors. `max_blocks`
    0 means the configured limit. A `use` of LoadBalancer takes blocks of no node.
    """

    host: str
    handle_id: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    num4: int = 0
    num6: int = 0
    pools4: Sequence[str] = ()
    pools6: Sequence[str] = ()
    use: str = WORKLOAD
    namespace: str = ""
    max_blocks: int = 0


@dataclass(frozen=True, slots=True)
class AssignResult:
    """The assigned addresses, each with its block's prefix length, and the shortfall.

    `shortfall` says per family why fewer addresses came than were asked for.
    """

    ipv4: Sequence[IPv4Interface] = ()
    ipv6: Sequence[IPv6Interface] = ()
    shortfall: Mapping[int, str] = field(default_factory=dict)


async def auto_assign(store: Datastore, request: AssignRequest) -> AssignResult:
    """Assign addresses from the pools that serve the request; fewer are no error.

    Raises `NoPool` when no pool may serve, unless the other family got its addresses, and
    `NoNode` when the node is not known.
    """
    host = blocks.LOAD_BALANCER if request.use == SERVICE else request.host
    if request.use != SERVICE and await store.get(ResourceKey("Node", host)) is None:
        raise NoNode(
            f"node {host!r} does not exist in the datastore: is calico-node running there?"
        )
    worker = Worker(store, host)
    known = await read_facts(store, host)
    got: dict[int, list[IPAddress]] = {4: [], 6: []}
    shortfall: dict[int, str] = {}
    for family, count in ((4, request.num4), (6, request.num6)):
        while len(got[family]) < count:
            part = _part(request, family, count - len(got[family]))
            try:
                got[family] += await _serve(worker, part, known)
            except IPAMError as error:
                if isinstance(error, NoPool) and not any(got.values()):
                    raise
                shortfall[family] = f"{len(got[family])} of {count}: {error}"
                break
    interfaces = {f: [_with_prefix(a, known) for a in got[f]] for f in got}
    return AssignResult(
        ipv4=[i for i in interfaces[4] if isinstance(i, IPv4Interface)],
        ipv6=[i for i in interfaces[6] if isinstance(i, IPv6Interface)],
        shortfall=shortfall,
    )


async def assign_ip(
    store: Datastore,
    address: IPAddress,
    host: str,
    *,
    handle_id: str | None = None,
    attributes: Mapping[str, str] | None = None,
    use: str = "",
) -> None:
    """Assign this very address; reservations do not hinder it.

    Raises `NotInPool`, `AddressInUse`, or under strict affinity `NotOwner`.
    """
    owner = blocks.LOAD_BALANCER if use == SERVICE else host
    request = Allocate(handle_id or "", attributes or {}, fixed=(address,), use=use)
    await _serve(Worker(store, owner), request, await read_facts(store, host))


def _part(request: AssignRequest, family: int, count: int) -> Allocate:
    requested = request.pools4 if family == 4 else request.pools6
    return Allocate(
        handle_id=request.handle_id or "",
        attributes=request.attributes,
        families=(family,),
        requested={family: requested},
        use=request.use,
        namespace=request.namespace,
        counts={family: count},
        partial=True,
        max_blocks=request.max_blocks,
    )


async def _serve(worker: Worker, request: Allocate, known: Facts) -> list[IPAddress]:
    ticket = PendingRequest(request)
    await worker.serve([ticket], known)
    worker.tidy()
    return list(ticket.done.result().addresses)


def _with_prefix(address: IPAddress, known: Facts) -> IPv4Interface | IPv6Interface:
    pool = pools.containing(known.pools, ip_network(address))
    return ip_interface(f"{address}/{pool.block_size if pool else address.max_prefixlen}")
