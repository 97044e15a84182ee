"""Operators at work: pools, settings, reports of leaked addresses, and Calico's half claims."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import msgspec

from ipam.admin import library, maintenance
from ipam.records import blocks
from ipam.records.errors import IPAMError
from ipam.records.naming import rfc3339
from libcalico.datastore.interface import CommitConflict, Delete, Put, Selection
from libcalico.errors import DatastoreError
from libcalico.model import BlockAffinity, IPAMConfig, IPPool, IPPoolSpec, Metadata, Node
from libcalico.model.keys import AffinityKey, BlockKey, IPAMConfigKey, ResourceKey
from libcalico.model.resources.ipam import PENDING
from tests.ipam.model.calls import SteppedStore, at_once
from tests.ipam.model.world import GONE, Host

if TYPE_CHECKING:
    from tests.ipam.model.explorer import Explorer

POOLS = {"p": "10.0.0.0/28", "q": "10.0.1.0/29", "six": "fd00::/125"}
SIZES = {"p": (30, 29, 31), "q": (32, 31, 30), "six": (127, 126, 127)}


class Operator:
    """Whoever runs calicoctl: its calls are steps too, but nobody restarts it."""

    def __init__(self) -> None:
        self.host = None
        self.alive = True


def pool(name: str, size: int, *, disabled: bool = False) -> IPPool:
    """A pool of the model."""
    spec = IPPoolSpec(cidr=POOLS[name], blockSize=size, disabled=disabled)
    return IPPool(metadata=Metadata(name=name), spec=spec)


def prepare(model: Explorer) -> None:
    """Nodes, pools and settings before anything runs."""
    puts = [
        Put(ResourceKey("Node", name), Node(metadata=Metadata(name=name))) for name in model.hosts
    ]
    for name, sizes in SIZES.items():
        puts.append(Put(ResourceKey("IPPool", name), pool(name, model.one(sizes))))
    if model.pick(3) == 0:
        puts.append(Put(IPAMConfigKey(), IPAMConfig(strict_affinity=True)))
    at_once(model.store.commit(puts))


def edit(model: Explorer) -> None:
    """Begin one of an operator's jobs."""
    kinds = ["report"] if model.inspected else ["strict", "toggle", "remake", "remake", "report"]
    kind = model.one(kinds)
    model.note(f"operator: {kind}", step=False)
    work = {"strict": _strict, "toggle": _toggle, "remake": _remake, "report": _report}[kind]
    store = SteppedStore(model.store, Operator(), "operator", model.loop, model.calls_append)

    async def patiently() -> None:
        try:
            await work(model, store)
        except (DatastoreError, IPAMError):
            pass

    choice = model.pick(8)
    model.edit_choice = choice  # type: ignore[attr-defined]
    task = model.loop.start(patiently())
    model.operators.add(task)
    task.add_done_callback(model.operators.discard)


async def _strict(model: Explorer, store: Any) -> None:
    entry = await store.get(IPAMConfigKey())
    before = entry.value if entry else IPAMConfig(auto_allocate_blocks=True)
    config = msgspec.structs.replace(before, strict_affinity=not before.strict_affinity)
    await store.commit([Put(IPAMConfigKey(), config, None, entry)])


async def _toggle(model: Explorer, store: Any) -> None:
    name = list(POOLS)[model.edit_choice % 3]  # type: ignore[attr-defined]
    entry = await store.get(ResourceKey("IPPool", name))
    size = entry.value.spec.blockSize
    now = pool(name, size, disabled=not entry.value.spec.disabled)
    await store.commit([Put(entry.key, now, entry.revision, entry)])


async def _remake(model: Explorer, store: Any) -> None:
    """Another block size: disable, give up the claims, remake.

    Half of the operators look whether a block is left; the others never heard of that (IPAM-16).
    """
    choice = model.edit_choice  # type: ignore[attr-defined]
    name = list(POOLS)[choice % 3]
    key = ResourceKey("IPPool", name)
    entry = await store.get(key)
    size = entry.value.spec.blockSize
    await store.commit([Put(key, pool(name, size, disabled=True), entry.revision, entry)])
    entry = await store.get(key)
    await maintenance.release_pool_affinities(store, ip_network(POOLS[name]))
    listing = await store.list(Selection("Block"))
    inside = [
        e
        for e in listing.entries
        if e.key.cidr.version == ip_network(POOLS[name]).version
        and e.key.cidr.subnet_of(ip_network(POOLS[name]))
    ]
    fresh = size if inside and choice < 4 else SIZES[name][choice // 3 % 3]
    await store.commit([Put(key, pool(name, fresh), entry.revision, entry)])


async def _report(model: Explorer, store: Any) -> None:
    """An operator lists what dead pods left, reads for a while, then removes what is unchanged.

    Endpoints go under the revision that was listed, addresses under handle and sequence.
    """
    endpoints = (await store.list(Selection("WorkloadEndpoint"))).entries
    stored = (await store.list(Selection("Block"))).entries
    dead = {c.handle_id: c.cid for c in model.containers.values() if c.state == GONE}
    found = [
        library.Release(a.address, a.handle_id, a.sequence)
        for entry in stored
        for a in blocks.allocations(entry.value)
        if a.handle_id in dead
    ]
    left = {dead[release.handle or ""] for release in found}
    model.reported |= left
    for _ in range(14):
        await store.get(IPAMConfigKey())
    model.reported -= left
    for entry in endpoints:
        if entry.value.spec.containerID in left:
            with suppress(CommitConflict):
                await store.commit([Delete(entry.key, entry.revision)])
    if found:
        await library.release_ips(store, found)


def half_claim(model: Explorer, host: Host) -> None:
    """This host ran Calico, which died between the two writes of a claim
    (docs/reference/data-model.md#block-affinities)."""
    if model.pick(3):
        return
    name = model.one(["p", "q"])
    stored = model.store.entries[ResourceKey("IPPool", name)].value.spec
    cidrs = list(ip_network(stored.cidr).subnets(new_prefix=stored.blockSize))
    cidr = model.one(cidrs)
    affinity, block = AffinityKey(host.name, cidr), BlockKey(cidr)
    if affinity in model.store.entries or stored.disabled:
        return
    others = [key.cidr for key in model.store.entries if isinstance(key, BlockKey)]
    if any(other != cidr and other.overlaps(cidr) for other in others):
        return  # Calico itself would make blocks that overlap
    model.note(f"half claim: {host.name} {cidr}")
    at_once(model.store.commit([Put(affinity, BlockAffinity(state=PENDING))]))
    if block not in model.store.entries and model.pick(2):
        now = model.loop.time_ns()
        value = blocks.create(cidr, f"{blocks.HOST}{host.name}", rfc3339(now), now)
        at_once(model.store.commit([Put(block, value)]))
