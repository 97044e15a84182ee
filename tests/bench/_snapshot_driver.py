"""One measurement of `./run bench felix-snapshot`, in this process; prints JSON.

Arguments: WAY ENDPOINT KIND ENDPOINTS POLICIES ROUNDS.
`SnapshotFelix` is felix from the datastore to the wanted rules, all of it real, without a kernel
behind: the syncer, the calculation, the rule book of both families, the sets as they are told.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from felix.agent import Agent
from felix.calc.graph import selections
from felix.dataplane.rules.backend import Tables
from felix.dataplane.rules.desired import DesiredRules
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.turn.cooperative_steps import in_slices
from felix.rules.dispatch import Bins
from felix.rules.iptables import render_rules
from felix.rules.model import Chain, Rule
from libcalico import gc_control
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.capabilities import rows_of
from libcalico.datastore.interface import Selection
from libcalico.datastore.syncer import Syncer
from tests.bench._datastore_driver import Stalls, peak
from tests.bench._snapshot_changes import changes
from tests.bench._snapshot_shape import NODE, Shape

FAMILIES = (4, 6)
Json = dict[str, Any]


def resident() -> float:
    """The process's memory now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256


class Target:
    """A table that keeps what is wanted in it."""

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Nothing is rendered ahead."""
        return iter(())

    def want(self, chain: Chain) -> None:
        """A chain, whole."""
        self.chains[chain.name] = chain

    def unwant(self, name: str) -> None:
        """No more."""
        self.chains.pop(name, None)


class Wanted:
    """The tables of a back end, as far as wanting goes."""

    def __init__(self) -> None:
        self.places = {
            (family, name): Target()
            for family in FAMILIES
            for name in ("raw", "mangle", "nat", "filter")
        }
        self.refused: dict[Any, dict[str, str]] = {}

    def dispatch(self, _family: int, *given: Any) -> Bins:
        """How packets find their endpoint."""
        return Bins(*given)

    def want(self, family: int, models: Mapping[str, Any]) -> None:
        """What does not depend on endpoints or policies."""

    @property
    def rules(self) -> int:
        """Rules wanted."""
        return sum(len(c.rules) for t in self.places.values() for c in t.chains.values())

    def render(self) -> int:
        """All as iptables-restore takes it; how many lines."""
        texts: dict[int, int] = {}
        for target in self.places.values():
            for chain in target.chains.values():
                if id(chain.rules) not in texts:
                    texts[id(chain.rules)] = len(render_rules(chain.rules))
        return sum(texts.values())


class SnapshotFelix:
    """Felix of node-here, as far as there is no kernel in it."""

    def __init__(self, store: Any) -> None:
        self.agent = Agent(NODE, {})
        self.calc = self.agent.calc
        self.store = store
        self.tables = Wanted()
        self.sets = Sets(frozenset(FAMILIES), 1 << 20, cast("Any", object()))
        self.desire = DesiredRules(frozenset(FAMILIES), cast("Tables", self.tables), self.sets)

    async def read(self) -> None:
        """Until the datastore has been read whole."""
        sinks = self.agent.sinks
        syncer = Syncer(self.store, selections(), sinks=sinks, resident=True)
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                await self.agent.apply_batch(batch)
                if batch.in_sync:
                    return

    async def settle(self) -> None:
        """What the main loop does before it asks what to write."""
        with gc_control.resting(lambda: True):
            await in_slices(self.calc.settling(0.0))

    async def tell(self) -> None:
        """What is wanted now, in the tables and sets."""
        config = self.agent.config
        news = self.calc.take_changes(config.interface_prefix)
        with gc_control.resting(lambda: True):
            await in_slices(self.desire.update(config, news, {}))

    async def told(self) -> int:
        """The sets take what they were told, as before a commit; returns how many members."""
        await self.sets._take()
        return sum(len(wanted.members) for wanted in self.sets._desired.values())


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    """The longest time in which the loop did nothing else."""
    stalls = Stalls()
    task = asyncio.create_task(stalls.run())
    await asyncio.sleep(0.05)
    stalls.longest = stalls.busy = 0.0
    try:
        yield stalls
        await asyncio.sleep(0.01)
    finally:
        task.cancel()


async def snapshot(store: Any) -> tuple[Json, SnapshotFelix]:
    """From stored bytes to the last desired rule."""
    felix = SnapshotFelix(store)
    seconds: Json = {}
    cpu: Json = {}
    stalled: Json = {}
    busy: Json = {}
    result: Json = {"rss_before_mib": round(resident())}
    for name, phase in (
        ("read", felix.read),
        ("match", felix.settle),
        ("tell", felix.tell),
        ("sets", felix.told),
    ):
        async with watched() as stalls:
            start, before = time.perf_counter(), time.process_time()
            outcome: Any = await phase()
            seconds[name] = round(time.perf_counter() - start, 3)
            cpu[name] = round(time.process_time() - before, 3)
        stalled[name] = round(stalls.longest * 1000, 1)
        busy[name] = round(stalls.busy * 1000, 1)
        if name == "sets":
            result["members"] = outcome
    result["total_s"] = round(sum(seconds.values()), 2)
    result["total_cpu_s"] = round(sum(cpu.values()), 2)
    result["seconds"], result["cpu_s"], result["stall_ms"] = seconds, cpu, stalled
    result["stall_cpu_ms"] = busy
    result["peak_rss_mib"] = round(peak())
    gc.collect()
    result["kept_rss_mib"] = round(resident())
    result["rules"] = felix.tables.rules
    result["figures"] = felix.calc.policy.figures()
    start = time.perf_counter()
    felix.tables.render()
    result["text_s"] = round(time.perf_counter() - start, 2)
    return result, felix


async def raw(store: Any) -> Json:
    """The same keys, in the same pages, not looked into."""
    start, seen = time.perf_counter(), 0
    before = time.process_time()
    for selection in selections():
        if selection.family.startswith("Block"):
            continue
        async for rows, _ in rows_of(store, selection):
            seen += len(rows)
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_s": round(time.process_time() - before, 2),
        "keys": seen,
        "peak_rss_mib": round(peak()),
    }


async def measured(way: str, endpoint: str, shape: Shape, rounds: int) -> Json:
    """The figures of one way."""
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=60)
    store: Any = await connect(config)
    try:
        await store.list(Selection("IPAMConfig"))
        if way == "raw":
            return await raw(store)
        result, felix = await snapshot(store)
        if way == "changes":
            result = {"changes": await changes(felix, shape, rounds, watched)}
        return result
    finally:
        await store.close()


if __name__ == "__main__":
    way, endpoint, kind, endpoints, policies, rounds = sys.argv[1:]
    shape = Shape(kind, int(endpoints), int(policies))
    print(json.dumps(asyncio.run(measured(way, endpoint, shape, int(rounds)))))
