"""What the life of a pod elsewhere costs a node: bytes and deliveries, on a real kube-apiserver.

The processes of a node follow what they really follow, each over a connection that counts, TLS and
HTTP included. The pod is made, bound, attached, reported by its kubelet, unready once, deleted,
detached, ended and removed: 13 writes (`pod_life`). Behind it comes another pod, for which every
follower of pods waits. On etcd: tests/node/test_what_a_node_receives.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import MappingProxyType

import pytest

from bgp.agent import followed
from bgp.agent.report import KIND as BGP_STATUS
from cni.node.cluster import Cluster
from cni.pods.kubernetes_pods import KubernetesPods
from felix.calc.graph import Calculator
from felix.calc.graph import selections as felix_selections
from felix.store.ingest import EndpointRows
from libcalico.datastore.interface import Row, Selection
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.datastore.syncer import Sink, Syncer
from libcalico.kubernetes.access import Access, Source
from libcalico.kubernetes.client import Client
from libcalico.model import ResourceKey
from tests.apiserver import kdd
from tests.apiserver.kubelet_report import register, report
from tests.apiserver.pod_life import PodLife
from tests.support.apiserver import ApiServer
from tests.support.counting import CountingProxy
from tests.support.patience import HANG, until

BEFORE = 184_800
"""Bytes of the same life as whole objects in JSON, of all pods: 14 events of 10 to 14 KB."""
LIMIT = 110_000
"""Bytes to all processes of a node together: 104,500 of events, and TLS. Not a third of `BEFORE`:
docs/design/0014-pods-in-protobuf.md says why."""
EVENTS = 11
"""It is bound; it ends. What comes before and after is not told."""
LIVES = 3
ME, OTHER = "n1", "n2"
NODE = ResourceKey("Node", OTHER)


class Heard:
    """The endpoints that a process has heard of."""

    def __init__(self) -> None:
        self.deliveries: list[str] = []

    def hear(self, name: str) -> None:
        """An endpoint came or went."""
        self.deliveries.append(name)

    def of(self, words: str) -> int:
        """How often it has heard of names with these words."""
        return sum(words in one for one in self.deliveries)


class HearingRows(EndpointRows):
    """The endpoints of felix."""

    def __init__(self, calc: Calculator, heard: Heard) -> None:
        super().__init__(calc, calc.update, lambda: None)
        self._heard = heard

    def apply_rows(self, rows: Sequence[Row]) -> None:
        """Some came."""
        for name, _, _ in rows:
            self._heard.hear(name)
        super().apply_rows(rows)

    def gone(self, name: str, revision: int) -> None:
        """One went."""
        self._heard.hear(name)
        super().gone(name, revision)


class Process:
    """What one process of the node follows, and what it has received."""

    def __init__(self, proxy: CountingProxy, source: Source) -> None:
        self.proxy, self.source = proxy, source
        self.store = KubernetesDatastore(Client(source, timeout=HANG))
        self.heard, self.node_at = Heard(), 0
        self.syncers: list[Syncer] = []

    @property
    def hears_of_pods(self) -> bool:
        """Whether it follows endpoints."""
        return any("WorkloadEndpoint" in one.known() for one in self.syncers)

    def has_node(self, at: int) -> bool:
        """Whether it has heard of the other node as it was at a revision."""
        return self.node_at >= at

    async def follow(self, syncer: Syncer) -> None:
        """Take what comes, for ever."""
        async for batch in syncer.batches():
            for update in batch.updates:
                if getattr(update.key, "kind", "") == "WorkloadEndpoint":
                    self.heard.hear(str(update.key))
                elif update.key == NODE and update.entry is not None:
                    self.node_at = update.entry.revision


async def process(stack: AsyncExitStack, api: ApiServer) -> Process:
    """A process with connections of its own."""
    proxy = CountingProxy(api.port)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    access = Access(f"https://127.0.0.1:{proxy.port}", ca=api.ca, token=api.access().token)
    made = Process(proxy, lambda: access)
    stack.push_async_callback(made.store.close)
    return made


async def node(
    stack: AsyncExitStack, api: ApiServer, more: Mapping[str, Selection]
) -> dict[str, Process]:
    """The node's processes, in sync. `more`: what a process follows besides."""
    made = {name: await process(stack, api) for name in ("felix", "bgp", "cni", "node")}
    felix, bgp, cni, own = made.values()
    sinks: dict[str, Sink] = {"WorkloadEndpoint": HearingRows(Calculator(ME), felix.heard)}
    felix.syncers = [Syncer(felix.store, felix_selections(), sinks=sinks, resident=False)]
    bgp.syncers = [
        Syncer(bgp.store, followed.selections()),
        Syncer(bgp.store, [Selection(BGP_STATUS)]),
    ]
    cni.syncers = [Cluster(cni.store, ME)._syncer]
    own.syncers = [
        Syncer(own.store, [Selection("Node", host=ME), Selection("FelixConfiguration", "", "n")]),
        Syncer(own.store, [Selection("IPPool"), Selection("Node", host=ME)]),
    ]
    for name, selection in more.items():
        made[name].syncers.append(Syncer(made[name].store, [selection]))
    pods = KubernetesPods(cni.source, ME)
    for running in (
        pods.run(),
        *(one.follow(syncer) for one in made.values() for syncer in one.syncers),
    ):
        stack.callback(asyncio.create_task(running).cancel)
    await until(lambda: pods.warm)
    for syncer in (syncer for one in made.values() for syncer in one.syncers):
        await until(partial(getattr, syncer, "in_sync"))
    return made


async def received(
    api: ApiServer, space: str, more: Mapping[str, Selection] = MappingProxyType({})
) -> dict[str, tuple[int, int]]:
    """Bytes of a pod's life, and deliveries of its endpoint, by process."""

    def live(name: str) -> None:
        for _, write in PodLife(api, space, name, OTHER, "10.65.1.3").steps():
            write()
        # Each watch keeps the order in which the API changed.
        kdd.pod(api, f"behind-{name}", OTHER, space=space)

    async with AsyncExitStack() as stack:
        for name in (ME, OTHER):
            kdd.node(kdd.install(api), name)
        made = await node(stack, api, more)
        lives = []
        for turn in range(LIVES):
            name = f"web{turn}"
            before = {process: one.proxy.received for process, one in made.items()}
            await asyncio.to_thread(live, name)
            for one in made.values():
                if one.hears_of_pods:
                    await until(partial(one.heard.of, f"-behind--{name}-"))
            lives.append(
                {
                    process: (one.proxy.received - before[process], one.heard.of(f"-k8s-{name}-"))
                    for process, one in made.items()
                }
            )
        # What belongs to the start, or to a minute, only adds to some.
        return {process: min(life[process] for life in lives) for process in made}


@pytest.mark.asyncio
async def test_the_life_of_a_pod_elsewhere_is_told_to_felix_alone(
    api: ApiServer, space: str
) -> None:
    """Before: 184,800 bytes in 14 events. Now at most 110,000 in 11, the marking pod included."""
    found = await received(api, space)
    deliveries = {name: count for name, (_, count) in found.items()}
    assert deliveries == {"felix": EVENTS, "bgp": 0, "cni": 0, "node": 0}
    assert sum(size for size, _ in found.values()) <= LIMIT < BEFORE * 0.6, found


@pytest.mark.asyncio
async def test_a_report_of_another_kubelet_is_whole_for_felix_alone(
    api: ApiServer, space: str
) -> None:
    """Before: 14,400 bytes of JSON to felix and to bgp. Now 11,900 and 2,700, and TLS."""
    async with AsyncExitStack() as stack:
        kdd.node(kdd.install(api), ME)
        register(api, OTHER)
        made = await node(stack, api, {})
        reports = []
        for minute in range(1, 1 + LIVES):
            before = {name: one.proxy.received for name, one in made.items()}
            at = await asyncio.to_thread(report, api, OTHER, minute)
            for name in ("felix", "bgp"):
                await until(partial(made[name].has_node, at))
            reports.append({name: one.proxy.received - before[name] for name, one in made.items()})
        found = {name: min(one[name] for one in reports) for name in made}
    assert found["felix"] <= 12_500, found
    assert found["bgp"] <= 3_000, found
    assert found["cni"] + found["node"] <= 100, found


@pytest.mark.asyncio
async def test_another_watch_is_noticed(api: ApiServer, space: str) -> None:
    """The figures above would show it."""
    found = await received(api, space, {"bgp": Selection("WorkloadEndpoint")})
    assert found["bgp"][1] >= EVENTS
    assert sum(size for size, _ in found.values()) > LIMIT * 1.5


@pytest.fixture(autouse=True)
def _nothing_left(api: ApiServer, space: str) -> Iterator[None]:
    yield
    kdd.clean(api)
    kdd.no_pods(api, space)
