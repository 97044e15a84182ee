"""What a write of one resource asks of others: checks before, cleaning up before a deletion.

Calico's client library does the same (docs/reference/data-model.md#side-effects-of-writes,
#ippool); any writer must, or pools overlap and addresses of removed nodes stay taken. Tested in
`tests/calicoctl/test_effects.py` on a real etcd.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import click
import msgspec
from msgspec.structs import replace

from libcalico.datastore.interface import (
    Check,
    CommitConflict,
    Datastore,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import NO_DOCUMENT, InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource
from libcalico.model.resources.cluster import FIXED_TIERS
from libcalico.model.resources.policy import POLICY_KINDS, Policy, tier_of
from libcalico.model.resources.pool import IPPool, IPPoolSpec
from libcalico.process.unlooped import pause

SETTLE_SECONDS = 0.5
"""How long the nodes get to see that a pool is disabled
(docs/reference/data-model.md#side-effects-of-writes)."""

TIERED = (*POLICY_KINDS, "StagedNetworkPolicy", "StagedGlobalNetworkPolicy")
"""The kinds that live in a tier; a staged policy keeps its tier too."""


async def before_create(
    store: Datastore, resource: Resource, allow_overlap: bool = False
) -> list[Check]:
    """The guards of the commit that creates the resource.

    Raises `MuslinError` when it does not go together with what is stored.
    """
    if isinstance(resource, IPPool):
        from ipam.admin import overlap

        await overlap.check_pool(store, resource, None, allow_overlap)
    return await guards(store, resource)


async def guards(store: Datastore, resource: Resource) -> list[Check]:
    """What must still hold when a resource is written: a policy's tier exists."""
    if not isinstance(resource, Policy):
        return []
    key = ResourceKey("Tier", tier_of(resource))
    tier = await store.get(key)
    if tier is None:
        raise InvalidValue(
            "spec.tier",
            key.name,
            "no tier of this name exists; create the Tier first",
            f"{resource.kind}({resource.metadata.name})",
        )
    return [Check(key, tier.revision)]


async def before_update(
    store: Datastore, old: Resource | None, new: Resource, allow_overlap: bool = False
) -> list[Check]:
    """The guards of the commit; raises `InvalidValue` when a field changed that may not.

    `old` None: what is stored cannot be read.
    """
    if isinstance(new, IPPool):
        from ipam.admin import overlap
        from libcalico import pools

        if not isinstance(old, IPPool) or pools.network_of(old) is None:
            # The pool before could not be used: this one is as good as new.
            return await before_create(store, new, allow_overlap)
        pools.check_update(old, new)
        await overlap.check_pool(store, new, old, allow_overlap)
    return await guards(store, new)


async def before_delete(store: Datastore, entry: Entry) -> None:
    """Clean up, or raise `MuslinError` when the resource may not go."""
    assert isinstance(entry.key, ResourceKey)
    act = _DELETIONS.get(entry.key.kind)
    if act is not None:
        await act(store, entry)


async def _delete_pool(store: Datastore, entry: Entry) -> None:
    from ipam.allocator.hosts import in_use, release_pool_affinities
    from libcalico.pools import network_of

    network = network_of(entry.value or _legible(entry))
    if network is None:
        return  # no pod has an address of it
    if entry.value and not entry.value.spec.disabled:
        # No node takes a new block from a disabled pool: the empty ones stay empty.
        spec = replace(entry.value.spec, disabled=True)
        try:
            await store.commit(
                [Put(entry.key, replace(entry.value, spec=spec), entry.revision, entry)]
            )
        except CommitConflict:
            raise MuslinError(f"{entry.key} was changed meanwhile; try again") from None
        await pause(SETTLE_SECONDS)
    await release_pool_affinities(store, network)
    left = await in_use(store, network)
    if left:
        click.echo(
            f"{entry.key}: {left} address(es) are still in use. They stay, without the pool's"
            " tunnel, natOutgoing and disableBGPExport: to give these back, create the pool again"
            " with disabled: true, and move the pods with `calicoctl ipam migrate`",
            err=True,
        )


def _legible(entry: Entry) -> IPPool:
    """A pool with the CIDR alone of one that cannot be read: blocks of it may be claimed."""
    pool = _Legible()
    with suppress(*NO_DOCUMENT):
        pool = msgspec.json.decode(entry.raw, type=_Legible)
    return IPPool(metadata=Metadata(), spec=IPPoolSpec(cidr=pool.spec.cidr))


class _LegibleSpec(msgspec.Struct):
    cidr: str = ""


class _Legible(msgspec.Struct):
    spec: _LegibleSpec = msgspec.field(default_factory=_LegibleSpec)


async def _delete_node(store: Datastore, entry: Entry) -> None:
    from ipam.admin.node_removal import clean_up

    assert isinstance(entry.key, ResourceKey)
    await clean_up(store, entry.key.name)


async def _delete_tier(store: Datastore, entry: Entry) -> None:
    assert isinstance(entry.key, ResourceKey)
    name = entry.key.name
    if name in FIXED_TIERS:
        raise MuslinError(f"operation Delete is not supported on {entry.key}: it is built in")
    for kind in TIERED:
        listing = await store.list(Selection(kind))
        inside = [str(one.key) for one in listing.entries if tier_of(one.value) == name]
        if listing.broken:
            # A policy that cannot be read may lie in any tier.
            inside += [path for path, _ in listing.broken]
        if inside:
            raise MuslinError(
                f"operation Delete is not supported on {entry.key}: it holds {len(inside)}"
                f" {kind} resource(s), such as {inside[0]}; delete them first"
            )


_DELETIONS: dict[str, Callable[[Datastore, Entry], Awaitable[None]]] = {
    "IPPool": _delete_pool,
    "Node": _delete_node,
    "Tier": _delete_tier,
}
