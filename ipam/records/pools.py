"""Which pools may serve a request, and in which order their blocks are tried.

Stored pools become `Pool`s here and nowhere else: what the store holds may have been written by
others, unchecked, and a pool that cannot be used must not stop the pools beside it.

Source: docs/reference/data-model.md#ippool (fields), 4.4 steps 3 and 4 (selection), 4.5 (block
order).
Tested in tests/ipam/test_pools.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TYPE_CHECKING

from libcalico.datastore.interface import Entry
from libcalico.errors import InvalidValue
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.pool import IPPool
from libcalico.model.resources.reservation import IPReservation

if TYPE_CHECKING:
    from logging import Logger

IPAddress = IPv4Address | IPv6Address

DEFAULT_BLOCK_SIZE = {4: 26, 6: 122}
WORKLOAD = "Workload"
TUNNEL = "Tunnel"
SERVICE = "LoadBalancer"


@dataclass(frozen=True, slots=True)
class Pool:
    """The fields of an `IPPool` that allocation needs, and its revision (0: not known).

    `disabled`: it gives no new address (a pool that is being removed is disabled, too);
    addresses in use, and all that leads to them, stay. `removed`: it is being removed.
    """

    name: str
    cidr: IPNetwork
    block_size: int
    disabled: bool = False
    removed: bool = False
    node_selector: str = ""
    namespace_selector: str = ""
    allowed_uses: tuple[str, ...] = (WORKLOAD, TUNNEL)
    automatic: bool = True
    ipip: bool = False
    vxlan: bool = False
    revision: int = 0

    @property
    def family(self) -> int:
        """4 or 6."""
        return self.cidr.version


def from_resource(resource: IPPool, revision: int = 0) -> Pool:
    """The pool of an `IPPool`; absent fields mean Calico's defaults.

    Raises InvalidValue for a CIDR that is none, or a block size that its family cannot have.
    """
    spec = resource.spec
    cidr = spec.network
    size = spec.blockSize or DEFAULT_BLOCK_SIZE[cidr.version]
    if not 0 < size <= cidr.max_prefixlen:
        raise InvalidValue("spec.blockSize", size, f"must be 1 to {cidr.max_prefixlen}")
    removed = bool(resource.metadata.deletionTimestamp)
    return Pool(
        name=resource.metadata.name,
        cidr=cidr,
        block_size=size,
        disabled=bool(spec.disabled) or removed,
        removed=removed,
        node_selector=spec.nodeSelector or "",
        namespace_selector=spec.namespaceSelector or "",
        allowed_uses=tuple(spec.allowedUses or (WORKLOAD, TUNNEL)),
        automatic=(spec.assignmentMode or "Automatic") == "Automatic",
        ipip=(spec.ipipMode or "Never") != "Never",
        vxlan=(spec.vxlanMode or "Never") != "Never",
        revision=revision,
    )


def sorted_out(entries: Iterable[Entry]) -> tuple[list[Pool], list[tuple[str, str]]]:
    """The pools of stored resources, and (key, reason) of each that cannot be used."""
    pools: list[Pool] = []
    unusable: list[tuple[str, str]] = []
    for entry in entries:
        try:
            pools.append(from_resource(entry.value, entry.revision))
        except InvalidValue as error:
            unusable.append((str(entry.key), str(error)))
    return pools, unusable


def usable(entries: Iterable[Entry]) -> list[Pool]:
    """The pools of stored resources; one that cannot be used is named in the log and left out."""
    pools, unusable = sorted_out(entries)
    for key, reason in unusable:
        _log().error("%s is not usable: %s", key, reason)
    return pools


def reserved_networks(resources: Iterable[IPReservation]) -> list[IPNetwork]:
    """The networks of stored IPReservations; one that is no network is named and left out."""
    networks: list[IPNetwork] = []
    for resource in resources:
        for text in resource.spec.reservedCIDRs or ():
            try:
                networks.append(ip_network(text, strict=False))
            except ValueError as error:
                _log().error("IPReservation(%s) is not usable: %s", resource.metadata.name, error)
    return networks


def names(pools: Iterable[Pool]) -> str:
    """The pools as an error message names them."""
    return ", ".join(f"{pool.name} ({pool.cidr})" for pool in pools)


def within(inner: IPNetwork, outer: IPNetwork) -> bool:
    """Whether a network lies in another of its own family."""
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def containing(pools: Iterable[Pool], cidr: IPNetwork) -> Pool | None:
    """The pool that holds a block or address, or None: the smallest, where one lies in another.

    A wide disabled pool around others says which networks are not masqueraded.
    """
    around = (pool for pool in pools if within(cidr, pool.cidr))
    return max(around, key=lambda pool: (pool.cidr.prefixlen, not pool.disabled), default=None)


def block_count(pool: Pool) -> int:
    """How many blocks a pool has; 0 if a block would be larger than the pool."""
    bits = pool.block_size - pool.cidr.prefixlen
    return 1 << bits if bits >= 0 else 0


def block_order(pool: Pool, host: str) -> Iterator[IPNetwork]:
    """All block networks of a pool, from a start that depends on the host, wrapping around.

    Hosts so begin at different places and seldom want the same block. Calico takes another
    hash; the start only affects placement. What matters is that names which differ in one
    digit begin far apart.
    """
    count = block_count(pool)
    if not count:
        return
    from hashlib import blake2b  # it loads OpenSSL, which who only counts does not need

    start = int.from_bytes(blake2b(host.encode(), digest_size=8).digest()) % count
    width = 1 << (pool.cidr.max_prefixlen - pool.block_size)
    base = int(pool.cidr.network_address)
    kind = type(pool.cidr)
    for step in range(count):
        yield kind((base + (start + step) % count * width, pool.block_size))


def _log() -> Logger:
    import logging  # of a short command, only where something is wrong

    return logging.getLogger(__name__)
