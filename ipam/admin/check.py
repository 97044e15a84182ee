"""Do the records of IPAM agree with each other, and with who uses which address?

A pure function over a `Snapshot`, for `calicoctl ipam check`, for the tests of the allocator
and for the model. It finds every class of disagreement that the data model allows (`Kind`);
each finding names one object and says in a sentence what is wrong with it.

What needs no action is a note, not a problem: a claim that its node will settle, an address
that cools down. Missing knowledge always means "in use" (an allocation of a load-balancer
service while the services could not be listed), never "leaked".

Source: docs/reference/data-model.md#block (blocks), 4.2 (handles), 4.3 (claims), 6.4 (the scans of
Calico's command). Tested in tests/ipam/test_check.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_network

from ipam.admin.check_blocks import block_findings, claim_findings, network_of, no_node
from ipam.admin.findings import NOTES, Finding, Kind, Record, Report
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from ipam.records.pools import containing
from ipam.records.snapshot import Snapshot, User
from libcalico.model import Attribute, Block
from libcalico.model.keys import IPNetwork

WINDOWS_HANDLE = "windows-reserved-ipam-handle"
LOAD_BALANCER = "LoadBalancer"

__all__ = ["Finding", "Kind", "Record", "Report", "attributes_text", "check", "confirmed"]


def check(snapshot: Snapshot) -> Report:
    """Judge a snapshot: all records, all problems, all notes."""
    records = tuple(_records(snapshot))
    findings = [
        *_unreadable(snapshot),
        *_addresses(snapshot, records),
        *_handles(snapshot, records),
        *block_findings(snapshot),
        *claim_findings(snapshot),
    ]
    return Report(
        records,
        tuple(one for one in findings if one.kind not in NOTES),
        tuple(one for one in findings if one.kind in NOTES),
    )


def confirmed(first: Report, second: Report) -> Report:
    """The second report without what the first did not see: what changed between the two.

    An allocation counts as leaked only if both saw it, by its sequence number and handle.
    """
    seen = set(first.problems)
    known = {(r.address, r.handle_id, r.sequence) for r in first.leaked()}

    def settled(record: Record) -> Record:
        if record.in_use or (record.address, record.handle_id, record.sequence) in known:
            return record
        return replace(record, in_use=True, owners=("changed while it was checked",))

    return Report(
        tuple(settled(record) for record in second.records),
        tuple(one for one in second.problems if one in seen),
        second.notes,
    )


def attributes_text(record: Record) -> str:
    """Handle and attributes in one line, as Calico's command prints them."""
    extra = ",".join(f"{key}={value}" for key, value in sorted(record.attributes.items()))
    return f"Main:{record.handle_id or '<none>'} Extra:{extra}"


def _records(snapshot: Snapshot) -> Iterator[Record]:
    for block in snapshot.blocks:
        cidr = network_of(block)
        if cidr is None:
            continue
        for ordinal, index in enumerate(block.allocations[: blocks.size(cidr)]):
            if index is None:
                continue
            known = block.attributes or []
            attribute = known[index] if 0 <= index < len(known) else None
            sequence = (block.sequenceNumberForAllocation or {}).get(str(ordinal))
            address = cidr.network_address + ordinal
            yield _record(snapshot, block, cidr, address, attribute, sequence)


def _record(
    snapshot: Snapshot,
    block: Block,
    cidr: IPNetwork,
    address: IPAddress,
    attribute: Attribute | None,
    sequence: int | None,
) -> Record:
    attributes = (attribute.secondary if attribute else None) or {}
    handle_id = ((attribute.handle_id if attribute else None) or "").partition("\r")[0]
    owner = blocks.owner_host(block) or ""
    node = attributes.get("node") or owner
    owners = [user.name for user in snapshot.users.get(address, ())]
    if handle_id == WINDOWS_HANDLE:
        owners.append("Reserved for Windows")
    if attributes.get("type") == LOAD_BALANCER:
        service = f"Service({attributes.get('namespace', '')}/{attributes.get('service', '')})"
        if snapshot.services is None:
            owners.append(f"{service}, not verified")
        elif address in snapshot.services:
            owners.append(service)
    return Record(
        address=address,
        block=cidr,
        handle_id=handle_id,
        sequence=sequence,
        attributes=attributes,
        node=node,
        borrowed=node != owner,
        cooling=bool(attribute and attribute.releasedAt),
        in_use=bool(owners),
        owners=tuple(owners),
    )


def _unreadable(snapshot: Snapshot) -> Iterator[Finding]:
    for key, reason in snapshot.unreadable:
        yield Finding(Kind.UNREADABLE, key, f"cannot be read: {reason}")


def _addresses(snapshot: Snapshot, records: Iterable[Record]) -> Iterator[Finding]:
    by_address: dict[IPAddress, list[Record]] = defaultdict(list)
    for record in records:
        by_address[record.address].append(record)
    reserved = [net for net in snapshot.reservations if net.num_addresses]
    for address, holders in by_address.items():
        subject = str(address)
        for record in holders:
            if no_node(snapshot, record.node):
                text = f"is allocated on {record.node}, which is no Node"
                yield Finding(Kind.NODE_MISSING, subject, text)
            if record.cooling:
                yield Finding(Kind.COOLING, subject, "is released and rests")
            elif not record.in_use:
                yield Finding(Kind.LEAKED, subject, f"leaked; attrs {attributes_text(record)}")
            elif any(net.version == address.version and address in net for net in reserved):
                yield Finding(Kind.RESERVED, subject, "is allocated and reserved")
        if len(holders) > 1:
            where = " and ".join(str(record.block) for record in holders)
            yield Finding(Kind.DOUBLE_OWNER, subject, f"is allocated twice, in blocks {where}")
        yield from _foreign(holders[0], snapshot.users.get(address, ()))
    active = [pool for pool in snapshot.pools if not pool.disabled]
    for address, users in snapshot.users.items():
        subject = str(address)
        for user in users:
            if no_node(snapshot, user.node):
                text = f"is used by {user.name} on {user.node}, which is no Node"
                yield Finding(Kind.NODE_MISSING, subject, text)
        given = by_address[address][0] if address in by_address else None
        if len({user.name for user in users}) > 1 and not (given and _moves(given)):
            names = " and ".join(dict.fromkeys(user.name for user in users))
            yield Finding(Kind.DOUBLE_OWNER, subject, f"has multiple owners: {names}")
        if given is not None and not given.cooling:
            continue
        for user in users:
            if given is None and containing(active, ip_network(address)) is None:
                text = f"in use by {user.name} is not in any active IP pool"
                yield Finding(Kind.NOT_IN_POOL, subject, text)
            else:
                text = f"in use by {user.name} and in active IPAM pool but has no IPAM allocation"
                yield Finding(Kind.NOT_ALLOCATED, subject, text)


def _moves(record: Record) -> bool:
    """A virtual machine keeps its address while it moves: two endpoints name it for a while."""
    return "vmi-name" in record.attributes


def _foreign(record: Record, users: Iterable[User]) -> Iterator[Finding]:
    """An address in use by a user other than its allocation's."""
    attributes = record.attributes
    if record.cooling or _moves(record):
        return
    pod = f"{attributes.get('namespace', '')}/{attributes['pod']}" if "pod" in attributes else ""
    tunnel = attributes.get("type", "").endswith("TunnelAddress")
    given = pod or (f"the tunnel of {record.node}" if tunnel else "")
    for user in users:
        if (
            (pod and user.tunnel)
            or (pod and user.pod and user.pod != pod)
            or (tunnel and not user.tunnel)
            or (tunnel and user.node != record.node)
        ):
            text = f"is allocated to {given}, but {user.name} uses it"
            yield Finding(Kind.DOUBLE_OWNER, str(record.address), text)


def _handles(snapshot: Snapshot, records: Iterable[Record]) -> Iterator[Finding]:
    actual: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        # Windows' reservations never get a handle object.
        if record.handle_id and record.handle_id != WINDOWS_HANDLE:
            actual[record.handle_id][str(record.block)] += 1
    for handle_id in snapshot.handles:
        if handle_id not in actual and handle_id != WINDOWS_HANDLE:
            yield Finding(Kind.HANDLE_UNUSED, handle_id, "doesn't have any active IPs")
    for handle_id, counts in actual.items():
        handle = snapshot.handles.get(handle_id)
        if handle is None:
            yield Finding(Kind.HANDLE_MISSING, handle_id, "is in use in a block but doesn't exist")
        elif dict(counts) != {str(cidr): n for cidr, n in (handle.block or {}).items() if n}:
            text = f"says {_counts(handle.block or {})}, the blocks hold {_counts(counts)}"
            yield Finding(Kind.HANDLE_COUNT, handle_id, text)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {cidr}" for cidr, count in sorted(counts.items())) or "nothing"
