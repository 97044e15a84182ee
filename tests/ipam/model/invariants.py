"""What must hold after every single commit, whoever made it.

Here are checked:
  IPAM-1   every ordinal is allocated, or exactly once in the queue;
  IPAM-5   handles say exactly what blocks hold;
  IPAM-10  a block names an owner only while that owner's claim stands, and gives addresses to
           its owner only while the claim is not pending; blocks never overlap.

Invariants (tests/ipam/model/test_model.py, tests/ipam/model/test_planted.py):
  MODEL-1  A container that was given addresses by an ADD, and whose DEL has not begun, holds them
           alone: an address has one holder.
  MODEL-2  The collector frees only allocations of its own node that stood under the same
           handle and sequence number ten seconds before, when it looked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ipam.records import blocks
from ipam.records.blocks import IPAddress
from libcalico.model.keys import AffinityKey, BlockKey
from libcalico.model.resources.ipam import PENDING
from tests.ipam.memory import MemoryStore
from tests.ipam.model.calls import Call
from tests.ipam.model.world import UP, Container


class Violation(AssertionError):
    """An invariant does not hold; the first word is its id."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds an address, as the blocks say."""

    handle_id: str
    sequence: int | None
    node: str


def holders(store: MemoryStore) -> dict[IPAddress, Holder]:
    """Every allocated address."""
    return {
        a.address: Holder(a.handle_id, a.sequence, a.attributes.get("node", ""))
        for block in store.blocks().values()
        for a in blocks.allocations(block)
    }


def check_store(store: MemoryStore) -> None:
    """Blocks, handles and claims agree."""
    stored: Mapping[BlockKey, Any] = store.blocks()
    held: dict[str, dict[str, int]] = {}
    for key, block in stored.items():
        if reason := blocks.problem(block):
            raise Violation(f"IPAM-1: {key}: {reason}")
        owner = blocks.owner_host(block)
        if owner is not None and AffinityKey(owner, key.cidr) not in store.entries:
            raise Violation(f"IPAM-10: {key} names {owner}, who has no claim on it")
        for item in blocks.allocations(block):
            counts = held.setdefault(item.handle_id, {})
            counts[block.cidr] = counts.get(block.cidr, 0) + 1
    for one, other in combinations(stored, 2):
        if one.cidr.overlaps(other.cidr):
            raise Violation(f"IPAM-10: blocks {one.cidr} and {other.cidr} overlap")
    recorded = {name: dict(handle.block or {}) for name, handle in store.handles().items()}
    if recorded != held:
        odd = sorted(k for k in {*recorded, *held} if recorded.get(k) != held.get(k))[0]
        raise Violation(
            f"IPAM-5: handle {odd} records {recorded.get(odd)}, blocks hold {held.get(odd)}"
        )


def check_owners(now: Mapping[IPAddress, Holder], containers: Iterable[Container]) -> None:
    """MODEL-1."""
    for container in containers:
        if container.state != UP:
            continue
        for address in container.addresses:
            holder = now.get(address)
            if holder is None or holder.handle_id != container.handle_id:
                raise Violation(
                    f"MODEL-1: {container.cid} on {container.host} runs with {address}, "
                    f"which {holder or 'nobody'} holds"
                )


def check_commit(
    store: MemoryStore,
    call: Call,
    before: Mapping[IPAddress, Holder],
    now: Mapping[IPAddress, Holder],
    at: float,
) -> None:
    """What one commit of a daemon did, at second `at`."""
    host = call.who.host.name
    for address, holder in now.items():
        if before.get(address) == holder:
            continue
        key = next(k for k in store.blocks() if within_block(address, k))
        if blocks.owner_host(store.blocks()[key]) != host:
            continue
        claim = store.entries.get(AffinityKey(host, key.cidr))
        if claim is None or claim.value.state == PENDING:
            raise Violation(f"IPAM-10: {address} given from {key.cidr}, whose claim is pending")
    if call.purpose != "collector":
        return
    for address, holder in before.items():
        if now.get(address) == holder:
            continue
        looked = call.looked
        if holder.node != host:
            raise Violation(f"MODEL-2: {host} collected {address} of {holder.node}")
        if looked is None or at - looked.at < 10:
            raise Violation(f"MODEL-2: {host} collected {address} without looking twice")
        if (address, holder.handle_id, holder.sequence) not in looked.triples:
            raise Violation(f"MODEL-2: {host} collected {address}, given out since it looked")


def within_block(address: IPAddress, key: BlockKey) -> bool:
    """Whether the block contains the address."""
    return address.version == key.cidr.version and address in key.cidr
