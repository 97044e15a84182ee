"""The part of the check that is about blocks and claims: do they agree with each other?

Pure; `ipam.admin.check.check` puts it together with addresses and handles. Source:
docs/reference/data-model.md#block, #block-affinities. Tested in tests/ipam/test_check.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_network

from ipam.admin.findings import Finding, Kind
from ipam.records import blocks
from ipam.records.pools import containing
from ipam.records.snapshot import Snapshot
from libcalico.model import Block
from libcalico.model.keys import AffinityKey, IPNetwork


def network_of(block: Block) -> IPNetwork | None:
    """The block's CIDR, or None when it is no network."""
    try:
        return ip_network(block.cidr)
    except ValueError:
        return None


def block_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Blocks that break their invariants, overlap, or do not fit their pool."""
    networks: list[IPNetwork] = []
    for block in snapshot.blocks:
        if reason := _invalid(block):
            yield Finding(Kind.BLOCK_INVALID, block.cidr, f"is inconsistent: {reason}")
        cidr = network_of(block)
        if cidr is None:
            continue
        networks.append(cidr)
        pool = containing(snapshot.pools, cidr)
        if pool is None:
            used = blocks.used_count(block)
            text = f"lies in no pool and has {used} addresses in use"
            yield Finding(Kind.BLOCK_ORPHANED, str(cidr), text)
        elif pool.block_size != cidr.prefixlen:
            text = f"has not the block size /{pool.block_size} of pool {pool.name} ({pool.cidr})"
            yield Finding(Kind.BLOCK_SIZE, str(cidr), text)
    yield from _overlaps(networks)


def _invalid(block: Block) -> str:
    if reason := blocks.problem(block):
        return reason
    for ordinal, sequence in (block.sequenceNumberForAllocation or {}).items():
        if sequence >= block.sequenceNumber:
            return (
                f"ordinal {ordinal} was allocated by write {sequence}, the block is only at"
                f" {block.sequenceNumber}"
            )
    return ""


def _overlaps(networks: Iterable[IPNetwork]) -> Iterator[Finding]:
    """Networks either nest or are apart: sorted, a nested one follows what holds it."""
    holder: IPNetwork | None = None
    ordered = sorted(networks, key=lambda n: (n.version, int(n.network_address), n.prefixlen))
    for network in ordered:
        if holder is not None and holder.version == network.version and holder.overlaps(network):
            yield Finding(Kind.BLOCKS_OVERLAP, str(network), f"overlaps block {holder}")
        else:
            holder = network


def no_node(snapshot: Snapshot, name: str) -> bool:
    """Whether no Node has this name. Where no Node was read at all, missing knowledge says no."""
    return bool(snapshot.nodes and name) and name not in snapshot.nodes


def claim_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Blocks and affinities that do not name each other."""
    by_cidr = {block.cidr: block for block in snapshot.blocks}
    for key, affinity in snapshot.affinities.items():
        yield from _claim(key, affinity.confirmed, by_cidr.get(str(key.cidr)))
        if key.kind == "host" and no_node(snapshot, key.host):
            text = f"is claimed by {key.host}, which is no Node"
            yield Finding(Kind.NODE_MISSING, str(key.cidr), text)
    claims = {(f"{key.kind}:{key.host}", str(key.cidr)) for key in snapshot.affinities}
    for block in snapshot.blocks:
        if no_node(snapshot, host := blocks.owner_host(block) or ""):
            text = f"belongs to {host}, which is no Node"
            yield Finding(Kind.NODE_MISSING, block.cidr, text)
        if block.owner and (block.owner, block.cidr) not in claims:
            text = f"belongs to {block.owner}, which has no affinity for it"
            yield Finding(Kind.BLOCK_UNCLAIMED, block.cidr, text)


def _claim(key: AffinityKey, is_confirmed: bool, block: Block | None) -> Iterator[Finding]:
    cidr, owner = str(key.cidr), f"{key.kind}:{key.host}"
    if not is_confirmed:
        yield Finding(Kind.CLAIM_UNSETTLED, cidr, f"is half claimed or half given up by {owner}")
    elif block is None:
        yield Finding(Kind.AFFINITY_STALE, cidr, f"is claimed by {owner}, but does not exist")
    elif block.owner is None:
        yield Finding(Kind.AFFINITY_STALE, cidr, f"is claimed by {owner}, but has no owner")
    elif block.owner != owner:
        text = f"is claimed by {owner}, but belongs to {block.owner}"
        yield Finding(Kind.DOUBLE_OWNER, cidr, text)
