"""A felix without its data plane: datastore, syncer and calculation are the product's, and whole.

`believed` is all that the data plane would take, in values that can be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from felix.agent import Agent, Paths
from felix.calc.graph import selections
from felix.calc.node_grace import HOLD
from felix.calc.tunnels import TunnelSupport
from felix.reports.metrics import of_datastore
from felix.reports.status_document import _detour
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.proxy.reading import Reader
from libcalico.datastore.etcd.proxy.way import Way
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.syncer import Syncer
from tests.felix.policy_objects import ME, Told
from tests.support.patience import until


class Felix:
    """One felix, from its start on."""

    def __init__(self, config: DatastoreConfig, folder: Path) -> None:
        names = ("socket", "config", "status", "felix/last-readable")
        self.agent = Agent(ME, {}, Paths(*(folder / name for name in names)))
        self.store = EtcdDatastore(config, node=ME)
        sinks = self.agent.sinks
        self.syncer = Syncer(self.store, selections(), sinks=sinks, backoff_maximum=0.5)
        self.agent.syncer, self.agent._store = self.syncer, self.store
        self._told = Told()
        self._clock = 0.0

    @property
    def way(self) -> Way:
        """By which its long reads go."""
        assert isinstance(self.store.reader, Reader)
        return self.store.reader.way

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """What felix.json says of the proxies."""
        return _detour(self.syncer)

    @property
    def metrics(self) -> tuple[int, int]:
        """What felix serves of its datastore: whether it is followed, whether by a detour."""
        found = {one.name: int(one.value) for one in of_datastore(self.syncer)}
        return found["muslin_felix_datastore_connected"], found["muslin_felix_etcd_detour"]

    def believed(self) -> dict[str, object]:
        """What the data plane would take now, by subject."""
        calc = self.agent.calc
        for _ in range(2):  # what is held for a moment begins to wait, and is over
            self._clock += 2 * HOLD
            for _ in calc.settling(self._clock):
                pass
        self._told.apply(calc.policy.flush())
        calc.cluster.settle(TunnelSupport())
        told, active = self._told, calc.endpoints.active(("",))
        return {
            "ready": calc.ready,
            "sets": {name: frozenset(members) for name, members in told.sets.items()},
            "policies": dict(told.policies),
            "profiles": dict(told.profiles),
            "endpoints": dict(told.endpoints),
            "hosts": dict(told.host_endpoints),
            "active": dict(active[0]),
            "shadowed": dict(active[1]),
            "nodes": dict(calc.nodes),
            "pools": dict(calc.pools),
            "blocks": dict(calc.blocks.facts),
            "ways": dict(calc.cluster.ways),
            "waiting": dict(calc.cluster.waiting),
            "blackholes": calc.blackholes(),
            "parameters": self.agent.configuration.resolve(),
            "broken": dict(calc.broken),
            "conditions": dict(calc.policy.conditions),
        }


@asynccontextmanager
async def running(config: DatastoreConfig, folder: Path) -> AsyncIterator[Felix]:
    """A felix that follows its datastore until the end."""
    felix = Felix(config, folder)
    await felix.agent.objects.readable.open()
    task = asyncio.create_task(felix.agent._follow(felix.syncer))
    try:
        await until(lambda: task.done() or felix.agent.calc.in_sync, "the snapshot")
        yield felix
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        felix.agent.objects.readable.close()
        await felix.store.close()


def differences(one: dict[str, object], other: dict[str, object]) -> str:
    """Where two beliefs differ, in words."""
    return "\n".join(
        f"{name}:\n  follows: {one[name]}\n  fresh:   {other[name]}"
        for name in one
        if one[name] != other[name]
    )
