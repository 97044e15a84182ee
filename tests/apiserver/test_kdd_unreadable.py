"""A policy that was readable and is not any more, on the Kubernetes datastore (felix, LRD-1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from felix.agent import Agent, Paths
from felix.calc.graph import selections
from libcalico.datastore.syncer import Syncer
from libcalico.model import ResourceKey
from tests.apiserver import kdd
from tests.support.apiserver import ApiServer
from tests.support.patience import patient, until

KEY = ResourceKey("GlobalNetworkPolicy", "default.torn")
PATH = f"{kdd.CRD}/globalnetworkpolicies"


def put(api: ApiServer, path: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Have an object of ours."""
    known = {"apiVersion": "crd.projectcalico.org/v1", "kind": kind}
    return api.ensure(path, {**known, "metadata": {"name": name}, "spec": spec})


def policy(api: ApiServer, selector: str) -> int:
    """Have the policy so; its revision."""
    spec = {"selector": selector, "order": 7, "types": ["Ingress"], "tier": "default"}
    return int(put(api, PATH, KEY.kind, KEY.name, spec)["metadata"]["resourceVersion"])


@asynccontextmanager
async def following(api: ApiServer, folder: Path) -> AsyncIterator[Agent]:
    """A felix that has read the datastore, follows it, and ends in order."""
    names = ("socket", "config", "status", "felix/last-readable")
    agent = Agent("n1", {}, Paths(*(folder / name for name in names)))
    await agent.objects.readable.open()
    async with kdd.opened(api) as store:
        syncer = Syncer(store, selections(), sinks=agent.sinks)

        async def follow() -> None:
            async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    await agent.apply_batch(batch)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(follow()), group.create_task(agent.objects.readable.run())]
            await until(lambda: agent.calc.in_sync)
            yield agent
            for task in tasks:
                task.cancel()
    agent.objects.readable.close()


def in_force(agent: Agent) -> str | None:
    found: Any = agent.calc.policy.stored(KEY)
    return None if found is None else found.spec.selector


def test_a_policy_that_becomes_unreadable_stays_as_it_was(api: ApiServer, tmp_path: Path) -> None:
    kdd.install(api)
    kdd.clean(api)
    information = {"clusterGUID": "g", "datastoreReady": True}
    put(api, f"{kdd.CRD}/clusterinformations", "ClusterInformation", "default", information)
    good = policy(api, "role == 'a'")

    async def lives() -> None:
        async with following(api, tmp_path) as agent:
            assert in_force(agent) == "role == 'a'"
            # The definition takes any text; that it is no selector only its reader knows.
            bad = policy(api, "role = 'a'")
            await until(lambda: KEY in agent.objects.readable.unreadable)
            assert in_force(agent) == "role == 'a'"
        async with following(api, tmp_path) as agent:
            assert in_force(agent) == "role == 'a'"
            told = agent.objects.readable.unreadable[KEY].message
            assert f"revision {good} is in force; revision {bad} is stored" in told
            policy(api, "role == 'b'")
            await until(lambda: in_force(agent) == "role == 'b'")
            assert not agent.objects.readable.unreadable
            policy(api, "role = 'b'")
            await until(lambda: KEY in agent.objects.readable.unreadable)
            api.delete(f"{PATH}/default.torn")
            await until(lambda: in_force(agent) is None)
            assert not agent.objects.readable.unreadable

    async def in_time() -> None:
        async with asyncio.timeout(patient(60)):
            await lives()

    asyncio.run(in_time())
    kdd.clean(api)
