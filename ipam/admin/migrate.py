"""Move a pool, step by step; an interrupted step is repeated.

The state lies in the datastore alone: the old pool is disabled and carries the annotation
`muslin/migrating-to` with the name of the new one. So any operator on any machine can go on,
and a second move of the same pool to elsewhere is refused.

Invariants:
  POOL-3  The old pool is disabled and the new one enabled in one transaction with the look
          at both; no block goes that holds an address.
  POOL-4  Every step may be repeated; `undo` brings back exactly the pool that was.
Tested in tests/ipam/test_migrate.py, and with the command in
tests/calicoctl/test_migrate.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network

from msgspec.structs import replace

from ipam.admin.migrate_plan import NodeState, Plan, plan, rested
from ipam.allocator import claim_release, claims
from ipam.allocator.settings import get_config
from ipam.allocator.view import View
from ipam.records import blocks, snapshot
from ipam.records.errors import IPAMError
from ipam.records.pools import from_resource
from libcalico.datastore.interface import (
    Check,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import MuslinError
from libcalico.model.keys import BlockKey
from libcalico.model.resources.pool import IPPool
from libcalico.pools import network_of

TO = "muslin/migrating-to"
WAS_DISABLED = "muslin/migrating-was-disabled"


async def find(store: Datastore, name: str) -> Entry:
    """A pool by its name or CIDR; raises `MuslinError`."""
    known = []
    for entry in (await store.list(Selection("IPPool"))).entries:
        if name == entry.value.metadata.name or _is_cidr(name, entry.value):
            return entry
        known.append(entry.value.metadata.name)
    raise MuslinError(f"there is no IP pool {name}; there are: {', '.join(known) or 'none'}")


def _is_cidr(text: str, pool: IPPool) -> bool:
    with suppress(ValueError):
        return ip_network(text, strict=False) == network_of(pool)
    return False


async def look(store: Datastore, old: Entry, new: Entry) -> Plan:
    """The state of a move, begun or not."""
    seen = await snapshot.read(store)
    labels: Mapping[str, Mapping[str, str]] = {
        entry.value.metadata.name: entry.value.metadata.labels
        for entry in (await store.list(Selection("Node"))).entries
    }
    return plan(old.value, new.value, seen, labels, time.time_ns())


def target_of(old: IPPool) -> str:
    """The pool that a pool is being moved to, or an empty text."""
    return str(old.metadata.annotations.get(TO, ""))


async def begin(store: Datastore, old: Entry, new: Entry) -> Entry:
    """Let the old pool give out nothing more; returns it as stored. No change when it is so.

    Raises `MuslinError` when it is on its way elsewhere, or changed meanwhile.
    """
    going, to = target_of(old.value), new.value.metadata.name
    if going and going != to:
        raise MuslinError(
            f"{old.key} is being moved to {going}: finish that, or take it back with"
            f" `calicoctl ipam migrate --from {old.value.metadata.name} --to {going} --abort`"
        )
    if going == to and old.value.spec.disabled:
        return old
    annotations = {**old.value.metadata.annotations, TO: to}
    if old.value.spec.disabled and not going:
        annotations[WAS_DISABLED] = "true"
    return await _write(store, old, annotations, True, Check(new.key, new.revision))


async def undo(store: Datastore, old: Entry) -> Entry:
    """The old pool as it was before `begin`; pods that have moved stay where they are.

    Raises `MuslinError` when no move was begun.
    """
    annotations = dict(old.value.metadata.annotations)
    if annotations.pop(TO, None) is None:
        raise MuslinError(f"{old.key} is not being moved")
    was = annotations.pop(WAS_DISABLED, "") == "true"
    return await _write(store, old, annotations, was)


async def _write(
    store: Datastore, old: Entry, annotations: dict[str, str], disabled: bool, *checks: Check
) -> Entry:
    value = replace(
        old.value,
        metadata=replace(old.value.metadata, annotations=annotations),
        spec=replace(old.value.spec, disabled=disabled),
    )
    try:
        await store.commit([Put(old.key, value, old.revision, old), *checks])
    except CommitConflict as conflict:
        raise MuslinError(f"{conflict}; look again, and run the command again") from None
    written = await store.get(old.key)
    if written is None:
        raise MuslinError(f"{old.key} was deleted meanwhile")
    return written


async def prepare(store: Datastore, new: Entry, nodes: Sequence[NodeState]) -> dict[str, str]:
    """Claim blocks of the new pool for the nodes whose pods will need them.

    So their routes are everywhere before the first pod is restarted. Returns why a node did
    not get all, by node: the node will claim the rest by itself.
    """
    seen = await snapshot.read(store)
    pool = from_resource(new.value, new.revision)
    failed: dict[str, str] = {}
    for node in nodes:
        for count in range(node.claims):
            try:
                await claims.claim_one(
                    store,
                    View(),
                    node.node,
                    [pool],
                    node.new_blocks + count,
                    seen.config,
                    reserved=seen.reservations,
                )
            except (IPAMError, CommitConflict) as error:
                failed[node.node] = str(error)
                break
    return failed


async def give_back(store: Datastore, state: Plan, node: str = "") -> int:
    """Give up the claims on empty blocks of the old pool; returns how many blocks are gone.

    With `node` only that node's. A block that got an address meanwhile stays (POOL-3).
    """
    gone = 0
    cooldown = (await get_config(store)).ipCooldownSeconds
    for key in state.empty:
        if node and key.host != node:
            continue
        affinity, block = await store.get(key), await store.get(BlockKey(key.cidr))
        with suppress(CommitConflict):
            if block is not None:
                block = await _rest(store, block, cooldown)
            if affinity and (block is None or blocks.is_empty(block.value)):
                gone += await claim_release.release(store, affinity, block)
    for cidr in () if node else state.ownerless:
        entry = await store.get(BlockKey(cidr))
        if entry is not None and blocks.is_abandoned(entry.value):
            with suppress(CommitConflict):
                await store.commit([Delete(entry.key, entry.revision)])
                gone += 1
    return gone


async def _rest(store: Datastore, entry: Entry, cooldown: int) -> Entry:
    """The block with its cooled addresses free, written where there were any."""
    block = rested(entry.value, time.time_ns(), cooldown)
    if block is entry.value:
        return entry
    put = Put(entry.key, blocks.written(block, entry.value), entry.revision, entry)
    view = View()
    view.wrote([put], await store.commit([put]))
    return view.get(entry.key) or entry
