"""One block: a small network whose addresses are given out from a queue.

A block's `unallocated` is a FIFO of free ordinals: addresses are taken from its head and
come back to its tail, so that an address rests as long as the block allows before it is
given out again. All functions are pure: they take a block and return a new one.

Invariants (tests/ipam/test_blocks.py):
  IPAM-1  Every ordinal is either allocated, or exactly once in the queue.
  IPAM-2  An address is released only under the handle, and where given under the sequence
          number, that it was allocated with.
  IPAM-3  Every write of a block raises `sequenceNumber` by one; an allocation remembers the
          number from before the write that made it.
  IPAM-4  Attributes are exactly those that some allocation refers to.

Source: docs/reference/data-model.md#block, #automatic-assignment step 6, 4.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import msgspec

from ipam.records.block_editor import BlockEditor, handle_of, is_windows_reserved
from ipam.records.errors import AddressInUse, BlockCorrupt, SequenceMismatch
from libcalico.model import Block
from libcalico.model.keys import IPNetwork

IPAddress = IPv4Address | IPv6Address
HOST, VIRTUAL = "host:", "virtual:"
LOAD_BALANCER = "virtual:load-balancer"
"""The owner, named like a host, of blocks whose addresses serve LoadBalancer services."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One address in use: who holds it and since which write."""

    address: IPAddress
    handle_id: str
    attributes: Mapping[str, str]
    sequence: int | None


def network(block: Block) -> IPNetwork:
    """The block's CIDR."""
    return ip_network(block.cidr)


def size(cidr: IPNetwork) -> int:
    """How many addresses a block has; every one of them can be given out."""
    return 1 << (cidr.max_prefixlen - cidr.prefixlen)


def create(cidr: IPNetwork, owner: str | None, claimed_at: str | None, sequence: int) -> Block:
    """An empty block. `owner` is `host:<node>`; `sequence` starts at the time in nanoseconds."""
    count = size(cidr)
    return Block(
        cidr=str(cidr),
        affinity=owner,
        affinity_claim_time=claimed_at,
        allocations=[None] * count,
        unallocated=list(range(count)),
        attributes=[],
        sequenceNumber=sequence,
        sequenceNumberForAllocation={},
    )


def problem(block: Block) -> str:
    """The violation of IPAM-1 or IPAM-4 in a stored block, or an empty text."""
    try:
        count = size(network(block))
    except ValueError:
        return f"its cidr {block.cidr!r} is no network"
    if len(block.allocations) != count:
        return f"{len(block.allocations)} allocations instead of {count}"
    queue = block.unallocated or []
    free = {ordinal for ordinal, index in enumerate(block.allocations) if index is None}
    if len(queue) != len(set(queue)):
        return "an ordinal stands twice in the queue"
    if set(queue) != free:
        odd = sorted(set(queue) ^ free)[0]
        return f"ordinal {odd} is both free and allocated, or neither"
    attributes = block.attributes or []
    for ordinal, index in enumerate(block.allocations):
        if index is not None and not 0 <= index < len(attributes):
            return f"ordinal {ordinal} refers to attribute {index}, which does not exist"
    return ""


def require_sound(block: Block) -> None:
    """Raise `BlockCorrupt` if the block breaks its invariants."""
    if reason := problem(block):
        raise BlockCorrupt(
            f"block {block.cidr} is inconsistent: {reason}; run `calicoctl ipam check`"
        )


def free_count(block: Block) -> int:
    """How many addresses are free."""
    return len(block.unallocated or [])


def used_count(block: Block) -> int:
    """How many addresses are given out or cool."""
    return sum(1 for index in block.allocations if index is not None)


def owner_host(block: Block) -> str | None:
    """The node that the block is affine to, or None (no owner, or a virtual one)."""
    owner = block.owner
    return owner[len(HOST) :] if owner and owner.startswith(HOST) else None


def owner_text(host: str) -> str:
    """How a block names its owner: `host:<node>`, or a virtual owner's own text."""
    return host if host.startswith(VIRTUAL) else f"{HOST}{host}"


def address_at(block: Block, ordinal: int) -> IPAddress:
    """The address of an ordinal."""
    return network(block).network_address + ordinal


def ordinal_of(block: Block, address: IPAddress) -> int:
    """The ordinal of an address; raises ValueError outside the block."""
    cidr = network(block)
    if address.version != cidr.version or address not in cidr:
        raise ValueError(f"{address} is not in block {cidr}")
    return int(address) - int(cidr.network_address)


def assign(
    block: Block, count: int, handle_id: str | None, attributes: Mapping[str, str]
) -> tuple[Block, list[IPAddress]]:
    """Take up to `count` addresses from the head of the queue; fewer if the block runs dry."""
    edit = BlockEditor(block)
    ordinals = edit.free(count)
    edit.give(ordinals, handle_id, attributes)
    return edit.result(), [address_at(block, ordinal) for ordinal in ordinals]


def require_free(edit: BlockEditor, ordinal: int, address: IPAddress) -> None:
    """Raise `AddressInUse`, naming the holder, unless the ordinal is free."""
    if not edit.is_free(ordinal):
        holder = edit.holder(ordinal)
        by = f" by handle {handle_of(holder)}" if holder and holder.handle_id else ""
        raise AddressInUse(f"address {address} is already in use{by} in block {edit.block.cidr}")


def written(block: Block, before: Block) -> Block:
    """The block as it is to be written over `before`: one sequence number later (IPAM-3)."""
    return msgspec.structs.replace(block, sequenceNumber=before.sequenceNumber + 1)


def allocations(block: Block) -> Iterator[Allocation]:
    """Every held address, in ascending order; cooling ones are not held."""
    base = network(block).network_address
    sequences = block.sequenceNumberForAllocation or {}
    for ordinal, index in enumerate(block.allocations):
        if index is None:
            continue
        attribute = block.attributes[index] if index < len(block.attributes) else None
        if attribute is not None and attribute.releasedAt:
            continue
        yield Allocation(
            address=base + ordinal,
            handle_id=handle_of(attribute) if attribute else "",
            attributes=(attribute.secondary if attribute else None) or {},
            sequence=sequences.get(str(ordinal)),
        )


def release(
    block: Block,
    addresses: Iterable[IPAddress],
    handle_id: str | None = None,
    sequence: int | None = None,
    released_at: str = "",
) -> tuple[Block, list[IPAddress]]:
    """Give addresses back to the tail of the queue; returns those that were in use.

    An address that is free already is skipped. With `handle_id` an address that another
    handle holds is skipped as well; a wrong `sequence` raises `SequenceMismatch` (IPAM-2).
    With `released_at` they cool first (ipam.records.block_editor).
    """
    edit = BlockEditor(block)
    freed: list[int] = []
    for address in addresses:
        ordinal = ordinal_of(block, address)
        if ordinal in freed or edit.is_free(ordinal):
            continue
        holder = edit.holder(ordinal)
        if handle_id is not None and (holder is None or handle_of(holder) != handle_id):
            continue
        require_sequence(edit, ordinal, address, sequence)
        freed.append(ordinal)
    edit.give_back(freed, released_at)
    return edit.result(), [address_at(block, ordinal) for ordinal in freed]


def require_sequence(
    edit: BlockEditor, ordinal: int, address: IPAddress, sequence: int | None
) -> None:
    """Raise `SequenceMismatch` unless the address is still the same allocation (IPAM-2)."""
    current = edit.sequence(ordinal)
    if sequence is not None and current != sequence:
        raise SequenceMismatch(
            f"address {address} was given out anew (sequence {current}, expected {sequence})"
        )


def is_empty(block: Block) -> bool:
    """Whether no address is held or cooling; what Windows sets aside does not count."""
    attributes = block.attributes or []
    return all(
        index is None or (0 <= index < len(attributes) and is_windows_reserved(attributes[index]))
        for index in block.allocations
    )


def is_abandoned(block: Block) -> bool:
    """Whether the block has no owner and no address in use: it is to be deleted."""
    return block.owner is None and is_empty(block)


def reserved_ordinals(cidr: IPNetwork, reserved: Iterable[IPNetwork]) -> Collection[int]:
    """The ordinals of a block that lie in reserved networks."""
    first, count = int(cidr.network_address), size(cidr)
    ordinals: set[int] = set()
    for network_ in reserved:
        if network_.version != cidr.version:
            continue
        low = int(network_.network_address) - first
        high = int(network_.broadcast_address) - first
        if high >= 0 and low < count:
            ordinals.update(range(max(low, 0), min(high, count - 1) + 1))
    return ordinals


def parse_address(text: str) -> IPAddress:
    """An address from `10.0.0.1`, `10.0.0.1/32` or their IPv6 forms."""
    return ip_address(text.partition("/")[0])
