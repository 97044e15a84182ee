"""The allocator as a library: what Calico's ipam interface offers, call by call.

Each call stands alone: it reads what it needs, and commits under guards. A node's own pods
go through `ipam.service.NodeAllocator`, which keeps its blocks at hand and groups requests.
Calico's library and this one may work on one etcd at the same time.

Source: data model 4.4 to 4.9. Tested in tests/ipam/test_library.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface

from ipam.blocks import IPAddress
from ipam.pools import WORKLOAD
from ipam.settings import get_config, set_config
from libcalico.datastore.interface import Datastore
from libcalico.model.keys import IPNetwork

__all__ = [
    "AssignRequest", "AssignResult", "Release", "ReleaseResult", "assign_ip", "auto_assign",
    "claim_affinity", "get_config", "release_affinity", "release_by_handle",
    "release_host_affinities", "release_ips", "release_pool_affinities", "remove_host",
    "set_config",
]  # fmt: skip


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
    """What was assigned, each address with its block's prefix length, and what was not.

    `shortfall` says per family why fewer addresses came than were asked for.
    """

    ipv4: Sequence[IPv4Interface] = ()
    ipv6: Sequence[IPv6Interface] = ()
    shortfall: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """One address to give back; only if the handle and the sequence, where given, are its own."""

    address: IPAddress
    handle: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """Addresses by what became of them; `refused` with the reason for each."""

    released: Sequence[IPAddress] = ()
    unallocated: Sequence[IPAddress] = ()
    refused: Mapping[IPAddress, Exception] = field(default_factory=dict)


async def auto_assign(store: Datastore, request: AssignRequest) -> AssignResult:
    """Assign addresses from the pools that serve the request; fewer are no error.

    Raises `NoPool` when no pool may serve a family.
    """
    raise NotImplementedError


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
    raise NotImplementedError


async def release_ips(store: Datastore, releases: Iterable[Release]) -> ReleaseResult:
    """Give addresses back; what does not match its handle or sequence is refused, the rest goes."""
    raise NotImplementedError


async def release_by_handle(store: Datastore, handle_id: str) -> list[IPAddress]:
    """Give back all that a handle holds; raises `NotAllocated` if there is no such handle."""
    raise NotImplementedError


async def claim_affinity(
    store: Datastore, cidr: IPNetwork, host: str
) -> tuple[list[IPNetwork], list[IPNetwork]]:
    """Claim every block of a network for a host; returns (claimed, those of others)."""
    raise NotImplementedError


async def release_affinity(
    store: Datastore, cidr: IPNetwork, host: str, *, must_be_empty: bool = False
) -> list[IPNetwork]:
    """Give up the host's claims on the blocks of a network; returns the blocks that are gone.

    Raises `BlockInUse` for a block with addresses if it `must_be_empty`.
    """
    raise NotImplementedError


async def release_host_affinities(
    store: Datastore, host: str, *, must_be_empty: bool = False
) -> list[IPNetwork]:
    """Give up all claims of a host."""
    raise NotImplementedError


async def release_pool_affinities(store: Datastore, pool: IPNetwork) -> int:
    """Give up all claims on the blocks of a pool; returns how many blocks are gone."""
    raise NotImplementedError


async def remove_host(store: Datastore, host: str) -> None:
    """Give up all claims of a host that is gone and remove its record."""
    raise NotImplementedError
