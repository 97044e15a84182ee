"""ClusterNetworkPolicies where Kubernetes is the datastore: peers that are nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from felix.calc.graph import Calculator, selections
from libcalico.conversion.cluster_policy import API_VERSION, KIND
from libcalico.datastore.interface import Selection
from libcalico.datastore.syncer import Syncer
from libcalico.model.keys import ResourceKey
from manifests.variants import CRDS
from tests.apiserver import kdd
from tests.support import crds
from tests.support.apiserver import ApiServer
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
POLICIES = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
KEY = ResourceKey("GlobalNetworkPolicy", "kcnp.to-edge")


@pytest.fixture
def cluster(api: ApiServer) -> Iterator[ApiServer]:
    """The server with the definitions, a namespace `web` and its pod; no policy."""
    kdd.install(api)
    kdd.clean(api)
    definition = yaml.safe_load(
        (CRDS / "policy.networking.k8s.io_clusternetworkpolicies.yaml").read_text()
    )
    api.ensure(crds.PATH, definition)
    crds.wait_served(api, definition)
    api.delete(POLICIES)
    yield api
    api.delete(POLICIES)
    api.delete(NODES)


def node(api: ApiServer, name: str, *addresses: str, **labels: str) -> None:
    api.ensure(NODES, {"metadata": {"name": name, "labels": labels}})
    listed = [{"type": "InternalIP", "address": one} for one in addresses]
    listed.append({"type": "Hostname", "address": name})
    api.call("PATCH", f"{NODES}/{name}/status", {"status": {"addresses": listed}}, content=MERGE)


def policy(api: ApiServer, name: str = "to-edge", action: str = "Accept", port: int = 80) -> None:
    peer = {"nodes": {"matchLabels": {"edge": "yes"}}}
    rule = {
        "action": action,
        "to": [peer],
        "protocols": [{"tcp": {"destinationPort": {"number": port}}}],
    }
    api.ensure(POLICIES, {
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name},
        "spec": {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "egress": [rule]},
    })  # fmt: skip


def nets(value: Any) -> list[tuple[str, list[str]]]:
    """Action and networks of each egress rule."""
    return [(rule.action, rule.destination.nets) for rule in value.spec.egress]


class Felix:
    """What felix' calculation holds, fed as an agent feeds it."""

    def __init__(self) -> None:
        self.calc = Calculator("n1")
        self.values: dict[Any, Any] = {}
        self.updates = 0

    async def follow(self, syncer: Syncer) -> None:
        async for batch in syncer.batches():
            for update in batch.updates:
                value = update.entry.value if update.entry is not None else None
                self.values[update.key] = value
                self.updates += update.key == KEY
                self.calc.update(update.key, value)
            self.calc.in_sync = batch.in_sync

    @property
    def rules(self) -> list[tuple[str, list[str]]] | None:
        value = self.values.get(KEY)
        return None if value is None else nets(value)


@asynccontextmanager
async def felix(api: ApiServer) -> AsyncIterator[Felix]:
    made = Felix()
    async with kdd.opened(api) as store:
        task = asyncio.create_task(made.follow(Syncer(store, selections())))
        try:
            await until(lambda: made.calc.in_sync)
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_felix_gets_the_nodes_that_the_labels_select_now(cluster: ApiServer) -> None:
    node(cluster, "e1", "10.1.0.1", "fd00::1", edge="yes")
    node(cluster, "e2", "10.1.0.2", edge="no")
    policy(cluster)
    async with felix(cluster) as running:
        first = [("Allow", ["10.1.0.1/32"]), ("Allow", ["fd00::1/128"])]
        assert running.rules == first, "from the first snapshot on"
        assert KEY not in running.calc.policy.conditions
        node(cluster, "e2", "10.1.0.2", edge="yes")
        both = [("Allow", ["10.1.0.1/32", "10.1.0.2/32"]), ("Allow", ["fd00::1/128"])]
        await until(lambda: running.rules == both)
        updates = running.updates
        cluster.call(
            "PATCH", f"{NODES}/e2", {"metadata": {"labels": {"other": "x"}}}, content=MERGE
        )
        node(cluster, "e3", "10.1.0.3")
        cluster.delete(f"{NODES}/e1")
        await until(lambda: running.rules == [("Allow", ["10.1.0.2/32"])])
        assert running.updates == updates + 1, "what changes nothing is not told"
        # A policy that goes is not told again by a node that changes.
        cluster.delete(f"{POLICIES}/to-edge")
        await until(lambda: running.rules is None)
        node(cluster, "e2", "10.1.0.9", edge="yes")
        policy(cluster, "another")
        other = ResourceKey("GlobalNetworkPolicy", "kcnp.another")
        await until(lambda: running.values.get(other))
        await until(lambda: nets(running.values[other]) == [("Allow", ["10.1.0.9/32"])])
        assert running.rules is None


async def test_a_policy_that_comes_first_opens_nothing_and_denies_until_nodes_are_known(
    cluster: ApiServer,
) -> None:
    """The watch brings the first policy that speaks of nodes; nobody followed them before."""
    node(cluster, "e1", "10.1.0.1", edge="yes")
    async with felix(cluster) as running:
        assert running.rules is None
        policy(cluster, action="Deny")
        await until(lambda: running.rules == [("Deny", ["10.1.0.1/32"])])
        policy(cluster, action="Deny", port=81)
        await until(lambda: running.values[KEY].spec.egress[0].destination.ports == [81])
        assert running.rules == [("Deny", ["10.1.0.1/32"])], "nodes stay known"


async def test_whoever_lists_or_gets_it_sees_the_nodes(cluster: ApiServer) -> None:
    node(cluster, "e1", "10.1.0.1", edge="yes")
    policy(cluster)
    async with kdd.opened(cluster) as store:
        assert nets((await store.get(KEY)).value) == [("Allow", ["10.1.0.1/32"])]
    async with kdd.opened(cluster) as store:
        node(cluster, "e1", "10.1.0.7", edge="yes")
        listing = await store.list(Selection("GlobalNetworkPolicy"))
        assert [nets(entry.value) for entry in listing.entries] == [[("Allow", ["10.1.0.7/32"])]]
        cluster.delete(f"{NODES}/e1")
        assert nets((await store.get(KEY)).value) == [], "no node is no address"
