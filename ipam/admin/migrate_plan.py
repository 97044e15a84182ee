"""Moving the pods of one pool to another: what there is to do, decided from a snapshot. Pure.

A pod's address cannot change while it lives, so moving means: the old pool gives out nothing
more, pods are restarted node by node at the operator's pace, and what they leave empty is
given back. This module says what stands in the way, what each node still holds, how many
blocks of the new pool it will need, and which blocks of the old pool may go.

Source: docs/reference/data-model.md#ippool, #block-affinities. Tested in
tests/ipam/test_migrate.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network

from ipam.admin.check import Record, check
from ipam.allocator.claims import DEFAULT_BLOCK_LIMIT
from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from ipam.records.pools import Pool, block_count, from_resource, within
from ipam.records.snapshot import Snapshot
from libcalico.errors import InvalidValue
from libcalico.model import Block
from libcalico.model.keys import AffinityKey, IPNetwork
from libcalico.model.resources.pool import IPPool
from libcalico.selectors import selectors


@dataclass(frozen=True, slots=True)
class Held:
    """An address of the old pool in use: `who` is `namespace/pod`, or what else holds it."""

    address: str
    who: str
    restart: bool
    """Whether restarting a pod frees it; tunnels move by themselves, services are changed."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node in the middle of it. `claims`: blocks of the new pool it should have in advance."""

    node: str
    allocations: tuple[Held, ...]
    leaked: tuple[str, ...]
    old_blocks: int
    new_blocks: int
    claims: int

    @property
    def pods(self) -> list[Held]:
        """The pods that a restart moves."""
        return [one for one in self.allocations if one.restart]


@dataclass(frozen=True, slots=True)
class Plan:
    """`problems` stand in the way; `warnings` the operator should know.

    `empty` are the claims on blocks of the old pool that hold nothing any more, and
    `ownerless` its blocks that hold nothing and have no owner.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    nodes: tuple[NodeState, ...]
    empty: tuple[AffinityKey, ...]
    ownerless: tuple[IPNetwork, ...]

    @property
    def remaining(self) -> int:
        """How many addresses of the old pool are allocated."""
        return sum(len(node.allocations) + len(node.leaked) for node in self.nodes)


def plan(
    old: IPPool,
    new: IPPool,
    snapshot: Snapshot,
    labels: Mapping[str, Mapping[str, str]],
    now: int = 0,
) -> Plan:
    """The plan to move pool `old` to `new` (IPPool resources).

    `labels` of every Node; `now` in nanoseconds says which addresses have cooled down. Raises
    InvalidValue for a pool that cannot be used.
    """
    source, target = from_resource(old), from_resource(new)
    problems, warnings = _fit(old, new, source, target)
    if problems:
        return Plan(tuple(problems), tuple(warnings), (), (), ())
    inside = [
        record
        for record in check(snapshot).records
        if within(ip_network(record.address), source.cidr) and not record.cooling
    ]
    own = {net: block for net, block in _networks(snapshot) if within(net, source.cidr)}
    theirs = {net: block for net, block in _networks(snapshot) if within(net, target.cidr)}
    selected = _selected(target, labels, warnings)
    names = {record.node for record in inside}
    names |= {owner for block in own.values() if (owner := blocks.owner_host(block))}
    room = block_count(target) - len(theirs)
    nodes = []
    for name in sorted(names):
        state = _node(name, inside, own, theirs, target, snapshot)
        if name not in selected:
            if state.allocations and name in labels:
                warnings.append(
                    f"node {name} is not selected by {target.name}: its pods cannot move"
                )
            state = replace(state, claims=0)
        claims = min(state.claims, max(0, room))
        room -= claims
        nodes.append(replace(state, claims=claims))
    _capacity(inside, theirs, source, target, snapshot, warnings)
    cooldown = snapshot.config.ipCooldownSeconds
    empty = {net for net, block in own.items() if blocks.is_empty(rested(block, now, cooldown))}
    return Plan(
        (),
        tuple(warnings),
        tuple(nodes),
        tuple(
            key
            for key, affinity in sorted(snapshot.affinities.items(), key=str)
            if within(key.cidr, source.cidr) and (key.cidr in empty or key.cidr not in own)
        ),
        tuple(net for net in sorted(empty, key=str) if own[net].owner is None),
    )


def rested(block: Block, now: int, cooldown: int) -> Block:
    """The block without the addresses that have cooled down; the same one if there are none."""
    edit = BlockEditor(block)
    edit.collect(now, cooldown)
    return edit.result()


def _fit(old: IPPool, new: IPPool, source: Pool, target: Pool) -> tuple[list[str], list[str]]:
    """(what forbids the move, what changes with it)."""
    problems: list[str] = []
    if source.name == target.name:
        problems.append(f"a pool cannot move to itself: --from and --to are both {source.name}")
    if source.family != target.family:
        problems.append(f"{source.name} is IPv{source.family}, {target.name} is IPv{target.family}")
    if target.disabled:
        problems.append(f"{target.name} is disabled: enable it first")
    if block_count(target) == 0:
        problems.append(f"{target.name} ({target.cidr}) holds no block of /{target.block_size}")
    missing = [use for use in source.allowed_uses if use not in target.allowed_uses]
    if missing:
        problems.append(f"{target.name} does not allow the use {', '.join(missing)}")
    warnings = []
    if source.automatic and not target.automatic:
        problems.append(f"{target.name} is served on request only (assignmentMode Manual)")
    for name in (
        "ipipMode",
        "vxlanMode",
        "natOutgoing",
        "disableBGPExport",
        "nodeSelector",
        "namespaceSelector",
    ):
        before, after = getattr(old.spec, name), getattr(new.spec, name)
        if (before or "") != (after or "") and {before, after} != {"", "Never"}:
            warnings.append(f"{name} changes from {before or 'unset'} to {after or 'unset'}")
    return problems, warnings


def _selected(
    target: Pool, labels: Mapping[str, Mapping[str, str]], warnings: list[str]
) -> set[str]:
    try:
        selector = selectors.parse(target.node_selector)
    except InvalidValue as error:
        warnings.append(f"the nodeSelector of {target.name} cannot be read: {error}")
        return set()
    return {node for node, own in labels.items() if selector.matches(own)}


def _networks(snapshot: Snapshot) -> Iterable[tuple[IPNetwork, Block]]:
    return ((blocks.network(block), block) for block in snapshot.blocks)


def _node(
    name: str,
    inside: Iterable[Record],
    own: Mapping[IPNetwork, Block],
    theirs: Mapping[IPNetwork, Block],
    target: Pool,
    snapshot: Snapshot,
) -> NodeState:
    records = [record for record in inside if record.node == name]
    living = tuple(_held(record) for record in records if record.in_use)
    new_blocks = [block for block in theirs.values() if blocks.owner_host(block) == name]
    free = sum(blocks.free_count(block) for block in new_blocks)
    pods = sum(1 for one in living if one.restart)
    size = 1 << (target.cidr.max_prefixlen - target.block_size)
    needed = max(0, -(-(pods - free) // size))
    limit = snapshot.config.maxBlocksPerHost or DEFAULT_BLOCK_LIMIT
    return NodeState(
        node=name,
        allocations=living,
        leaked=tuple(str(record.address) for record in records if not record.in_use),
        old_blocks=sum(1 for block in own.values() if blocks.owner_host(block) == name),
        new_blocks=len(new_blocks),
        claims=min(needed, max(0, limit - len(new_blocks))),
    )


def _held(record: Record) -> Held:
    attributes, address = record.attributes, str(record.address)
    kind = attributes.get("type", "")
    if kind.endswith("TunnelAddress"):
        return Held(address, f"{kind} of {record.node}", restart=False)
    if kind == "LoadBalancer":
        return Held(address, f"service {record.owners[0]}", restart=False)
    if "pod" in attributes:
        return Held(address, f"{attributes.get('namespace', '')}/{attributes['pod']}", restart=True)
    return Held(address, record.owners[0], restart=not record.owners[0].startswith("Node("))


def _capacity(
    inside: list[Record],
    theirs: Mapping[IPNetwork, Block],
    source: Pool,
    target: Pool,
    snapshot: Snapshot,
    warnings: list[str],
) -> None:
    used = sum(blocks.used_count(block) for block in theirs.values())
    reserved = sum(
        min(net.num_addresses, target.cidr.num_addresses)
        for net in snapshot.reservations
        if net.version == target.cidr.version and net.overlaps(target.cidr)
    )
    free = target.cidr.num_addresses - used - reserved
    if free < len(inside):
        warnings.append(
            f"{target.name} has only {max(0, free)} free addresses for the {len(inside)}"
            f" in use in {source.name}"
        )
