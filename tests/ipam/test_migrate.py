"""Moving a pool: what is planned, and that a move which is cut anywhere goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ipam.admin import library, migrate, migrate_plan
from ipam.admin.check import check
from ipam.admin.library import AssignRequest, Release
from ipam.admin.migrate_plan import Plan
from ipam.records.blocks import parse_address
from ipam.records.errors import NoPool
from ipam.records.pools import Pool
from ipam.records.snapshot import read
from libcalico.datastore.interface import Change, Datastore, Delete, Entry, Put
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.model import IPReservation, IPReservationSpec, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool

OLD, NEW = ResourceKey("IPPool", "old"), ResourceKey("IPPool", "new")


async def start_pod(store: Datastore, node: str, pod: str) -> str:
    """A pod as its node makes it: address, then endpoint."""
    attributes = {"node": node, "namespace": "ns", "pod": pod}
    result = await library.auto_assign(store, AssignRequest(node, f"k8s.{pod}", attributes, num4=1))
    assert result.ipv4, result.shortfall
    address = str(result.ipv4[0].ip)
    endpoint = WorkloadEndpoint(
        metadata=Metadata(name=f"{node}-k8s-{pod}-eth0", namespace="ns"),
        spec=WorkloadEndpointSpec(node=node, pod=pod, ipNetworks=[f"{address}/32"]),
    )
    await store.commit([Put(_key(node, pod), endpoint)])
    return address


async def stop_pod(store: Datastore, node: str, pod: str, address: str) -> None:
    await library.release_ips(store, [Release(parse_address(address))])
    await store.commit([Delete(_key(node, pod))])


def _key(node: str, pod: str) -> ResourceKey:
    return ResourceKey("WorkloadEndpoint", f"{node}-k8s-{pod}-eth0", "ns")


async def world(**new: Any) -> MemoryStore:
    """Two nodes, two pools, three pods in the old one."""
    store = MemoryStore()
    await put_pool(store, "old", "10.0.0.0/24", 29)
    for node in ("n1", "n2"):
        await put_node(store, node)
    for node, pod in (("n1", "a"), ("n1", "b"), ("n2", "c")):
        await start_pod(store, node, pod)
    await put_pool(store, "new", "10.1.0.0/24", **({"size": 28} | new))
    return store


async def pools(store: MemoryStore) -> tuple[Entry, Entry]:
    return await migrate.find(store, "old"), await migrate.find(store, "10.1.0.0/24")


async def step(store: MemoryStore) -> Plan:
    """One run of the command."""
    old, new = await pools(store)
    state = await migrate.look(store, old, new)
    assert not state.problems
    old = await migrate.begin(store, old, new)
    await migrate.prepare(store, new, state.nodes)
    await migrate.give_back(store, await migrate.look(store, old, new))
    return await migrate.look(store, old, new)


@pytest.mark.promise("F-34")
@pytest.mark.promise("PAIN-5")
def test_a_pool_moves_node_by_node_to_blocks_of_another_size() -> None:
    async def scenario() -> None:
        store = await world()
        state = await step(store)
        assert [(n.node, len(n.pods), n.old_blocks, n.new_blocks) for n in state.nodes] == [
            ("n1", 2, 1, 1),
            ("n2", 1, 1, 1),
        ]
        for held in state.nodes[1].pods:
            await stop_pod(store, "n2", "c", held.address)
        assert (await start_pod(store, "n2", "c")).startswith("10.1.")
        state = await step(store)
        assert [node.node for node in state.nodes] == ["n1"]
        for held in state.nodes[0].pods:
            await stop_pod(store, "n1", held.who.partition("/")[2], held.address)
        state = await step(store)
        assert (state.remaining, state.nodes, state.empty) == (0, (), ())
        assert check(await read(store)).problems == ()

    asyncio.run(scenario())


def test_the_old_pool_gives_out_nothing_and_abort_brings_it_back() -> None:
    async def scenario() -> None:
        store = await world()
        before = store.entries[OLD].value
        old, new = await pools(store)
        begun = await migrate.begin(store, old, new)
        assert await migrate.begin(store, begun, new) is begun
        with pytest.raises(NoPool):
            await library.auto_assign(
                store, AssignRequest("n1", "h", num4=1, pools4=["10.0.0.0/24"])
            )
        elsewhere = replace(new.value, metadata=replace(new.value.metadata, name="other"))
        with pytest.raises(MuslinError, match="being moved to new"):
            await migrate.begin(store, begun, replace_entry(new, elsewhere))
        await migrate.undo(store, begun)
        assert store.entries[OLD].value == before
        with pytest.raises(MuslinError, match="not being moved"):
            await migrate.undo(store, store.entries[OLD])

    asyncio.run(scenario())


def replace_entry(entry: Entry, value: Any) -> Entry:
    return Entry(entry.key, value, entry.revision, entry.raw)


def test_a_pool_that_was_disabled_before_stays_so_after_an_abort() -> None:
    async def scenario() -> None:
        store = await world()
        await put_pool(store, "old", "10.0.0.0/24", 29, disabled=True)
        begun = await migrate.begin(store, *(await pools(store)))
        restored = await migrate.undo(store, begun)
        assert restored.value.spec.disabled
        assert restored.value.metadata.annotations == {}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ({"disabled": True}, "new is disabled"),
        ({"allowedUses": ["Tunnel"]}, "does not allow the use Workload"),
        ({"assignmentMode": "Manual"}, "on request only"),
        ({"size": 20}, "holds no block"),
    ],
)
def test_a_target_that_cannot_serve_is_refused(new: dict[str, Any], told: str) -> None:
    async def scenario() -> None:
        store = await world(**new)
        state = await migrate.look(store, *(await pools(store)))
        assert any(told in problem for problem in state.problems)

    asyncio.run(scenario())


def test_what_the_operator_should_know_is_said() -> None:
    async def scenario() -> None:
        store = await world(natOutgoing=True, nodeSelector="has(gpu)")
        reserved = IPReservation(
            metadata=Metadata(name="r"), spec=IPReservationSpec(reservedCIDRs=["10.1.0.0/24"])
        )
        await store.commit([Put(ResourceKey("IPReservation", "r"), reserved)])
        state = await migrate.look(store, *(await pools(store)))
        told = "; ".join(state.warnings)
        for text in ("natOutgoing changes", "node n1 is not selected", "only 0 free addresses"):
            assert text in told
        assert all(node.claims == 0 for node in state.nodes)

    asyncio.run(scenario())


def test_an_address_that_nobody_uses_is_named_not_restarted() -> None:
    async def scenario() -> None:
        store = await world()
        await store.commit([Delete(_key("n2", "c"))])
        state = await migrate.look(store, *(await pools(store)))
        assert [(n.node, len(n.pods), len(n.leaked)) for n in state.nodes] == [
            ("n1", 2, 0),
            ("n2", 0, 1),
        ]
        assert state.remaining == 3

    asyncio.run(scenario())


def test_a_block_that_only_cooled_down_is_given_back() -> None:
    async def scenario() -> None:
        store = await world()
        config = replace(await library.get_config(store), ipCooldownSeconds=1200)
        await library.set_config(store, config)
        state = await step(store)
        for node in state.nodes:
            for held in node.pods:
                await stop_pod(store, node.node, held.who.partition("/")[2], held.address)
        state = await step(store)
        assert state.remaining == 0
        assert [node.old_blocks for node in state.nodes] == [1, 1]
        await library.set_config(store, replace(config, ipCooldownSeconds=1))
        await asyncio.sleep(1.1)
        assert (await step(store)).nodes == ()

    asyncio.run(scenario())


@pytest.mark.promise("F-34")
def test_a_move_cut_at_any_write_goes_on_and_loses_no_address() -> None:
    async def scenario(cut: int, late: bool) -> bool:
        store = await world()
        commits = 0

        def fail(_: Sequence[Change]) -> None:
            nonlocal commits
            commits += 1
            if commits == cut:
                raise DatastoreUnavailable("killed")

        if late:
            store.after_commit = fail
        else:
            store.before_commit = fail
        addresses = {"n1/a", "n1/b", "n2/c"}
        interrupted = False
        for round_ in range(3):
            try:
                state = await step(store)
            except DatastoreUnavailable:
                interrupted = True
                state = await step(store)
            assert check(await read(store)).problems == ()
            held = {f"{n.node}/{h.who[3:]}" for n in state.nodes for h in n.pods}
            assert held <= addresses
            for node in state.nodes[:1]:
                for one in node.pods:
                    await _restart(store, node.node, one.who[3:], one.address)
            if not state.nodes:
                assert round_ == 2
        state = await step(store)
        assert state.remaining == 0
        found = check(await read(store))
        assert found.problems == ()
        assert len(found.records) == 3
        return interrupted

    async def _restart(store: MemoryStore, node: str, pod: str, address: str) -> None:
        # The pod's node is not the operator's command: it is not cut.
        before, after = store.before_commit, store.after_commit
        store.before_commit = store.after_commit = lambda _: None
        await stop_pod(store, node, pod, address)
        await start_pod(store, node, pod)
        store.before_commit, store.after_commit = before, after

    # The operator's three runs make nine writes; each may be lost, or made and its answer lost.
    for late in (False, True):
        interrupted = [asyncio.run(scenario(cut, late)) for cut in range(1, 11)]
        assert interrupted == [True] * 9 + [False]


@pytest.mark.parametrize(
    ("reserved", "free"),
    [((), 8), (("10.0.0.0/30",), 4), (("10.0.0.0/16",), 0), (("fd00::/64",), 8)],
)
def test_of_a_reservation_only_what_lies_in_the_pool_counts(
    reserved: tuple[str, ...], free: int
) -> None:
    source = Pool("old", ip_network("10.9.0.0/29"), 29)
    target = Pool("new", ip_network("10.0.0.0/29"), 29)
    snapshot = cast(Any, SimpleNamespace(reservations=[ip_network(one) for one in reserved]))
    for used in (free, free + 1):
        warnings: list[str] = []
        migrate_plan._capacity(cast(Any, [None] * used), {}, source, target, snapshot, warnings)
        assert warnings == [f"new has only {free} free addresses for the {used} in use in old"] * (
            used > free
        )
