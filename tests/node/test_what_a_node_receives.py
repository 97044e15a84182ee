"""What one pod change elsewhere costs a node: bytes and deliveries, on a real etcd.

The processes of a node follow what they really follow, each over a connection that counts. A pod
change is IPAM's own transaction: a full block, a handle, an endpoint. Each change, once it was
heard, is followed by one that all processes hear of, so that nothing is waited for by the clock;
what that one costs is measured alone and taken off.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from statistics import median_high
from types import MappingProxyType

import pytest

from bgp.agent import followed, report
from cni.node.cluster import Cluster
from felix.calc.graph import Calculator
from felix.calc.graph import selections as felix_selections
from felix.store.ingest import EndpointRows
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Change, Datastore, Delete, Put, Row, Selection
from libcalico.datastore.syncer import Sink, Syncer
from libcalico.model import (
    AffinityKey,
    Attribute,
    Block,
    BlockAffinity,
    BlockKey,
    Handle,
    HandleKey,
    IPPool,
    IPPoolSpec,
    Metadata,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
    codec,
)
from libcalico.model.resources.endpoint import WorkloadEndpointPort
from tests.support.counting import CountingProxy
from tests.support.etcd import Etcd
from tests.support.patience import HANG, until

ROOT = Path(__file__).parents[2]
LIMIT = 1500
"""Bytes to all processes of a node together, for one pod change elsewhere."""
CHANGES = 6
ME, OTHER = "n1", "n2"
CIDR = ip_network("10.65.1.0/26")
MARK = ResourceKey("IPPool", "pool")
"""All processes hear of it."""
FOLLOWED = {
    "bgp/agent/report.py": ["[Selection(KIND)]"],
    "bgp/serving.py": ["selections()"],
    "cni/node/cluster.py": ["[*(Selection(family) for family in FAMILIES), *own]"],
    "felix/agent.py": ["selections()"],
    "node/start/own_node.py": ["[Selection('Node', host=self._name), own]"],
    "node/start/tunnel_addresses.py": ["[Selection('IPPool'), own]"],
}
"""What is followed in the datastore on a node, by the source that says so."""


class CountingRows(EndpointRows):
    """Counts the endpoints that come."""

    delivered = 0

    def apply_rows(self, rows: Sequence[Row]) -> None:
        """Some came."""
        self.delivered += len(rows)
        super().apply_rows(rows)

    def gone(self, name: str, revision: int) -> None:
        """One went."""
        self.delivered += 1
        super().gone(name, revision)


class Process:
    """What one process of the node follows, and what it has received."""

    def __init__(self, proxy: CountingProxy) -> None:
        self.proxy = proxy
        endpoint = f"http://127.0.0.1:{proxy.port}"
        config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint)
        self.store = EtcdDatastore(config)
        self.updates = 0
        self.in_sync = 0
        self.marks = 0
        self.heard = asyncio.Event()
        self.rows: CountingRows | None = None

    async def follow(self, syncer: Syncer) -> None:
        """Take what comes, for ever."""
        synced = False
        async for batch in syncer.batches():
            for update in batch.updates:
                if update.key == MARK:
                    value = update.entry.value if update.entry else None
                    self.marks = int(value.metadata.annotations["turn"]) if value else 0
                else:
                    self.updates += 1
            if batch.in_sync and not synced:
                synced = True
                self.in_sync += 1
            self.heard.set()

    @property
    def delivered(self) -> int:
        """Deliveries other than of the mark."""
        return self.updates + (self.rows.delivered if self.rows is not None else 0)

    async def until(self, turn: int, syncers: int) -> None:
        """Until it has read everything, and this mark."""
        while self.marks < turn or self.in_sync < syncers:
            self.heard.clear()
            async with asyncio.timeout(HANG):
                await self.heard.wait()


class Node:
    """The processes of a node, each with what it follows."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        self.syncers: dict[str, list[Syncer]] = {}

    async def add(self, stack: AsyncExitStack, name: str, port: int) -> Process:
        """A process with a connection of its own."""
        proxy = CountingProxy(port)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        process = self.processes[name] = Process(proxy)
        stack.push_async_callback(process.store.close)
        return process

    async def run(self, stack: AsyncExitStack, more: Mapping[str, list[Selection]]) -> None:
        """Begin to follow. `more`: what a process follows besides."""
        for name, process in self.processes.items():
            if name in more:
                self.syncers[name].append(Syncer(process.store, more[name]))
            for syncer in self.syncers[name]:
                task = asyncio.create_task(process.follow(syncer))
                stack.callback(task.cancel)

    async def heard(self, turn: int) -> None:
        """All have heard of a mark."""
        for name, process in self.processes.items():
            await process.until(turn, len(self.syncers[name]))

    async def received_more(
        self, before: Mapping[str, tuple[int, int]], names: Collection[str]
    ) -> None:
        """These processes have had a delivery since these figures."""
        for name in names:
            process, deliveries = self.processes[name], before[name][1]
            await until(lambda p=process, d=deliveries: p.delivered > d, f"{name} hears of it")  # type: ignore[misc]

    def figures(self) -> dict[str, tuple[int, int]]:
        """Bytes and deliveries so far, by process."""
        return {
            name: (process.proxy.received, process.delivered)
            for name, process in self.processes.items()
        }


async def node(stack: AsyncExitStack, port: int) -> Node:
    """The node's processes; nothing is followed yet."""
    made = Node()
    felix = await made.add(stack, "felix", port)
    calc = Calculator(ME)
    felix.rows = CountingRows(calc, calc.update, lambda: None)
    sinks: dict[str, Sink] = {"WorkloadEndpoint": felix.rows}
    made.syncers["felix"] = [Syncer(felix.store, felix_selections(), sinks=sinks, resident=False)]
    bgp = await made.add(stack, "bgp", port)
    made.syncers["bgp"] = [
        Syncer(bgp.store, followed.selections()),
        Syncer(bgp.store, [Selection(report.KIND)]),
    ]
    cni = await made.add(stack, "cni", port)
    made.syncers["cni"] = [Cluster(cni.store, ME)._syncer]
    own = await made.add(stack, "node", port)
    made.syncers["node"] = [
        Syncer(own.store, [Selection("Node", host=ME), Selection("FelixConfiguration", "", "n")]),
        Syncer(own.store, [Selection("IPPool"), Selection("Node", host=ME)]),
    ]
    return made


def block(turn: int) -> Block:
    """A block of 64 pods, as IPAM writes it."""
    attributes = [
        Attribute(
            handle_id=f"k8s-pod-network.{n:064x}",
            secondary={
                "node": OTHER,
                "namespace": "production",
                "pod": f"web-7c5ddbdf54-{n:05d}",
                "timestamp": f"2026-11-27 12:00:{turn:02d}.000000 +0000 UTC",
            },
        )
        for n in range(64)
    ]
    return Block(
        cidr=str(CIDR), affinity=f"host:{OTHER}", allocations=list(range(64)), attributes=attributes
    )


def endpoint(name: str) -> WorkloadEndpoint:
    """A pod's endpoint as calico-cni stores it."""
    labels = {
        "app.kubernetes.io/component": "frontend",
        "app.kubernetes.io/instance": "web-production",
        "app.kubernetes.io/name": "web",
        "pod-template-hash": "7c5ddbdf54",
        "projectcalico.org/namespace": "production",
        "projectcalico.org/orchestrator": "k8s",
        "projectcalico.org/serviceaccount": "web",
    }
    spec = WorkloadEndpointSpec(
        node=OTHER,
        orchestrator="k8s",
        containerID="c" * 64,
        pod="web-7c5ddbdf54-00001",
        endpoint="eth0",
        interfaceName="cali0123456789a",
        serviceAccountName="web",
        mac="ee:ee:ee:ee:ee:ee",
        ipNetworks=[f"{CIDR[1]}/32"],
        profiles=["kns.production", "ksa.production.web"],
        ports=[WorkloadEndpointPort(name="http", protocol="TCP", port=8080)],
    )
    meta = Metadata(
        name=name,
        namespace="production",
        labels=labels,
        uid="00000000-0000-4000-8000-000000000001",
        creationTimestamp="2026-11-27T12:00:00Z",
    )
    return WorkloadEndpoint(metadata=meta, spec=spec)


def change(turn: int, ends: bool = False) -> list[Change]:
    """A pod starts on the other node, or ends."""
    name = f"{OTHER}-k8s-web--7c5ddbdf54--{turn:05d}-eth0"
    handle = HandleKey(f"k8s-pod-network.{turn}")
    key = ResourceKey("WorkloadEndpoint", name, "production")
    if ends:
        return [Put(BlockKey(CIDR), block(turn)), Delete(handle), Delete(key)]
    value = endpoint(name)
    assert len(codec.encode_value(key, value)) > 900
    return [Put(BlockKey(CIDR), block(turn)), Put(handle, Handle({str(CIDR): 1})), Put(key, value)]


async def mark(store: Datastore, turn: int) -> None:
    spec = IPPoolSpec(cidr="10.65.0.0/16", blockSize=26)
    metadata = Metadata(name="pool", annotations={"turn": f"{turn:04d}"})
    await store.commit([Put(MARK, IPPool(metadata=metadata, spec=spec))])


async def received(
    etcd: Etcd, more: Mapping[str, list[Selection]] = MappingProxyType({}), ends: bool = False
) -> dict[str, tuple[int, int]]:
    """Bytes and deliveries of one pod change, by process.

    felix hears of it, and so does a process that follows `more`. The mark waits for that: etcd
    keeps no order between two watches, and gives a busy one several changes at a time.
    """
    async with AsyncExitStack() as stack:
        store = EtcdDatastore(etcd.config())
        stack.push_async_callback(store.close)
        assert len(codec.encode_value(BlockKey(CIDR), block(0))) > 8000
        await store.commit([Put(AffinityKey(OTHER, CIDR), BlockAffinity())])
        for turn in range(CHANGES if ends else 0):
            await store.commit(change(turn))
        await mark(store, 1)
        made = await node(stack, etcd.port)
        await made.run(stack, more)
        await made.heard(1)
        steps: dict[bool, list[dict[str, tuple[int, int]]]] = {False: [], True: []}
        for turn in range(2, 2 + 2 * CHANGES):
            before, changes = made.figures(), turn >= 2 + CHANGES
            if changes:
                await store.commit(change(turn - 2 - CHANGES, ends))
                await made.received_more(before, {"felix", *more})
            await mark(store, turn)
            await made.heard(turn)
            steps[changes].append(difference(made.figures(), before))
        # What belongs to the start may come late: the median has none of it.
        alone, both = middle(steps[False]), middle(steps[True])
        return difference(both, alone)


def difference(
    one: Mapping[str, tuple[int, int]], other: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """By process, of bytes and deliveries."""
    return {name: (one[name][0] - other[name][0], one[name][1] - other[name][1]) for name in one}


def middle(steps: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """The medians, by process."""
    return {
        name: (
            median_high(step[name][0] for step in steps),
            median_high(step[name][1] for step in steps),
        )
        for name in steps[0]
    }


def calls(path: Path) -> Iterator[str]:
    """What each Syncer of a source follows, as it is written there."""
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.Call) and ast.unparse(found.func) == "Syncer":
            yield ast.unparse(found.args[1])


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", [False, True])
async def test_a_pod_change_elsewhere_costs_a_node_one_small_delivery(
    etcd: Etcd, ends: bool
) -> None:
    found = await received(etcd, ends=ends)
    assert {name: deliveries for name, (_, deliveries) in found.items()} == {
        "felix": 1,
        "bgp": 0,
        "cni": 0,
        "node": 0,
    }
    assert sum(size for size, _ in found.values()) <= LIMIT, found


@pytest.mark.asyncio
@pytest.mark.parametrize("family", ["Block", "Handle", "WorkloadEndpoint"])
async def test_another_watch_is_noticed(etcd: Etcd, family: str) -> None:
    """The figures above would show it."""
    found = await received(etcd, {"bgp": [Selection(family)]})
    assert found["bgp"][1] == 1
    assert found["bgp"][0] > 100


def test_nothing_else_is_followed_on_a_node() -> None:
    """A new syncer, or another list of one, is to be counted here first."""
    found = {
        str(path.relative_to(ROOT)): list(calls(path))
        for room in ("bgp", "cni", "felix", "ipam", "node")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "Syncer(" in path.read_text()
    }
    assert found == FOLLOWED
