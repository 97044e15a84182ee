"""ClusterNetworkPolicies, kept equal to the GlobalNetworkPolicies `kcnp.<name>` in the datastore.

The kind is served only where its definition is installed, which is asked for again from time to
time. Peers that are nodes are the addresses of the nodes, so policies that speak of nodes are
converted anew when a node comes, goes or changes. What cannot be enforced stands in the
policy's status as a condition of type `Enforced`, and never widens access; a policy that needs
none has none. Objects of the kinds that Kubernetes gave up are named in the log. Where Kubernetes
is the datastore nothing is copied: only the status is written.

Tested in tests/controllers/test_cluster_policies.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from controllers.mirror.mirror import PERIOD, Family, Mirror
from controllers.mirror.objects import NODES
from controllers.queue import WorkQueue
from libcalico.conversion import Conversion, NodeAddresses, convert, older_kind
from libcalico.conversion.cluster_policy import API_VERSION, KIND, PREFIX, speaks_of_nodes
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import ApiError, KubernetesError, ObjectNotFound
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Node, Object, Resource
from libcalico.kubernetes.reflector import Reflector
from libcalico.model.base.meta import Condition, now_text
from libcalico.model.keys import ResourceKey

log = logging.getLogger(__name__)

GROUP = "/apis/policy.networking.k8s.io"
OLDER = {
    "AdminNetworkPolicy": f"{GROUP}/v1alpha1/adminnetworkpolicies",
    "BaselineAdminNetworkPolicy": f"{GROUP}/v1alpha1/baselineadminnetworkpolicies",
}
ADDRESSES = ("InternalIP", "ExternalIP")
ENFORCED = "Enforced"
MANAGER = "calico-kube-controllers"
APPLY = "application/apply-patch+yaml"
ASK_AGAIN = 30.0
"""Seconds between two looks whether the kind is served."""
MAX_MESSAGE = 32_768
GATHER = 0.2
"""Seconds for which changes of nodes are gathered."""


class Status(msgspec.Struct):
    """What implementations report."""

    conditions: list[Condition] | None = None


class ClusterNetworkPolicy(Object, kw_only=True):
    """`policy.networking.k8s.io/v1alpha2`; what its spec says is read by the conversion."""

    spec: dict[str, Any] | None = None
    status: Status = msgspec.field(default_factory=Status)

    @property
    def document(self) -> dict[str, object]:
        """The parts that the conversion reads."""
        metadata = {"name": self.metadata.name}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}


CLUSTER_POLICIES = Resource(
    API_VERSION, "clusternetworkpolicies", ClusterNetworkPolicy, namespaced=False
)


class ClusterPolicies:
    """Keeps the policies equal while `run` runs; a mirror as the others, with nodes beside it."""

    name = "clusterpolicy"

    def __init__(
        self,
        client: Client,
        store: Datastore | None,
        *,
        workers: int = 1,
        period: float = PERIOD,
        ask_again: float = ASK_AGAIN,
    ) -> None:
        """Without `store` nothing is written but what the policies' status says."""
        self._client, self._period, self._ask_again = client, period, ask_again
        self._values: dict[Name, ClusterNetworkPolicy] = {}
        self._problems: dict[Name, str] = {}
        self._nodes: dict[Name, NodeAddresses] = {}
        self._reports: WorkQueue[Name] = WorkQueue()
        self._stale = asyncio.Event()
        self._said = ""
        self.served = False
        self.older: tuple[str, ...] = ()
        family = Family(
            self.name,
            CLUSTER_POLICIES,
            self.convert,
            lambda name: ResourceKey("GlobalNetworkPolicy", PREFIX + name.name),
            Selection("GlobalNetworkPolicy", name_prefix=PREFIX),
        )
        self.mirror = (
            _Reporting(self, client)
            if store is None
            else _Following(self, family, client, store, workers=workers, period=period)
        )
        self.node_reflector = Reflector(client, NODES, _NodeSink(self))

    @property
    def ready(self) -> bool:
        """Whether both sides were read whole, where there is anything to read."""
        return self.mirror.ready or not self.served

    @property
    def in_sync(self) -> bool:
        """Whether both sides are read, and nothing waits."""
        caught_up = not self._stale.is_set() and not len(self._reports)
        return self.ready and caught_up and (not self.served or self.mirror.in_sync)

    @property
    def queue(self) -> WorkQueue[ResourceKey]:
        """The names that wait, for the metrics."""
        return self.mirror.queue

    @property
    def writes(self) -> int:
        """How many objects were written."""
        return self.mirror.writes

    async def run(self) -> None:
        """Follow and write, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._name_the_older())
            while True:
                self.served = await self._is_served()
                if self.served:
                    break
                await asyncio.sleep(self._ask_again)
            group.create_task(self.node_reflector.run())
            group.create_task(self._follow_nodes())
            group.create_task(self.mirror.run())
            group.create_task(self._reports.work(self._report))

    # -- policies and nodes --------------------------------------------------------------------

    def remember(self, name: Name, value: ClusterNetworkPolicy) -> None:
        """A policy is so now."""
        self._values[name] = value

    def forget(self, name: Name) -> None:
        """It is gone."""
        self._values.pop(name, None)
        self._problems.pop(name, None)

    def node(self, name: Name, value: Node | None) -> None:
        """A node is so now, or gone (None)."""
        node_addresses = None
        if value is not None:
            addresses = [one for kind in ADDRESSES for one in value.addresses(kind)]
            node_addresses = NodeAddresses(value.metadata.labels or {}, tuple(addresses))
        if self._nodes.get(name) == node_addresses:
            return
        if node_addresses is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node_addresses
        if self.node_reflector.has_listed:
            self._stale.set()

    async def _follow_nodes(self) -> None:
        while True:
            await self._stale.wait()
            # Each policy is compared with all nodes: once for a cluster that changes its nodes.
            await asyncio.sleep(GATHER)
            self._stale.clear()
            self.convert_again()

    def convert_again(self) -> None:
        """The nodes are others now."""
        for name, value in list(self._values.items()):
            if speaks_of_nodes(value.document):
                self.mirror.put(name, value)

    def convert(self, value: ClusterNetworkPolicy) -> Conversion | None:
        """What it becomes, and what of it does not is told. Raises InvalidValue."""
        document = value.document
        if not self.node_reflector.has_listed and speaks_of_nodes(document):
            # The nodes are told in a moment; what is stored stays until then.
            return None
        try:
            conversion = convert(document, list(self._nodes.values()))
        except InvalidValue as problem:
            self._tell(value, f"nothing of it is enforced as written: {problem}")
            raise
        self._tell(value, "; ".join(str(one) for one in conversion.dropped))
        return conversion

    # -- what is told --------------------------------------------------------------------------

    def _tell(self, value: ClusterNetworkPolicy, problem: str) -> None:
        self._problems[value.name] = problem
        if _differs(value, problem):
            self._reports.add(value.name)

    async def _report(self, name: Name) -> bool:
        value, problem = self._values.get(name), self._problems.get(name, "")
        if value is None or not _differs(value, problem):
            return True
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name.name},
            "status": {"conditions": [_condition(problem)] if problem else []},
        }
        path = CLUSTER_POLICIES.path("", name.name, "status")
        query = {"fieldManager": MANAGER, "force": "true"}
        try:
            await self._client.request("PATCH", path, query, json.dumps(body).encode(), APPLY)
        except ObjectNotFound:
            return True
        except KubernetesError as error:
            log.warning("the condition is not written: %s", error, extra={"object": name.name})
            return False
        return True

    async def _name_the_older(self) -> None:
        while True:
            policies = []
            for kind, path in OLDER.items():
                policies += [f"{kind}({name})" for name in await self._names(path)]
            if tuple(policies) != self.older:
                self.older = tuple(policies)
                for one in policies:
                    log.error("%s: %s", one, older_kind(one.partition("(")[0]))
            await asyncio.sleep(self._period)

    async def _names(self, path: str) -> list[str]:
        try:
            listed: Mapping[str, Any] = json.loads(await self._client.request("GET", path))
        except KubernetesError:
            # Not served is what is wanted; what cannot be asked is asked again.
            return []
        return [one["metadata"]["name"] for one in listed.get("items") or ()]

    async def _is_served(self) -> bool:
        query = {"limit": "1"}
        try:
            await self._client.request("GET", CLUSTER_POLICIES.path(), query)
        except ApiError as error:
            if error.status != 404 and str(error) != self._said:
                self._said = str(error)
                log.warning("ClusterNetworkPolicies cannot be read: %s", error)
            return False
        except KubernetesError:
            return False
        return True


class _Following(Mirror[ClusterNetworkPolicy]):
    """The mirror, which tells its owner of every policy."""

    def __init__(
        self,
        owner: ClusterPolicies,
        family: Family[ClusterNetworkPolicy],
        client: Client,
        store: Datastore,
        *,
        workers: int,
        period: float,
    ) -> None:
        super().__init__(family, client, store, workers=workers, period=period)
        self._owner = owner

    def put(self, name: Name, value: ClusterNetworkPolicy) -> None:
        self._owner.remember(name, value)
        super().put(name, value)

    def gone(self, name: Name) -> None:
        self._owner.forget(name)
        super().gone(name)


class _Reporting:
    """In the place of the mirror where Kubernetes is the datastore: what is read is what counts."""

    def __init__(self, owner: ClusterPolicies, client: Client) -> None:
        self._owner = owner
        self.reflector = Reflector(client, CLUSTER_POLICIES, self)
        self.queue: WorkQueue[ResourceKey] = WorkQueue()
        self.writes = 0

    @property
    def ready(self) -> bool:
        """Whether all have been told."""
        return self.reflector.has_listed

    @property
    def in_sync(self) -> bool:
        """The same."""
        return self.ready

    def put(self, name: Name, value: ClusterNetworkPolicy) -> None:
        """A policy is so now."""
        self._owner.remember(name, value)
        try:
            self._owner.convert(value)
        except InvalidValue as problem:
            log.error("not enforced as written: %s", problem, extra={"object": str(name)})

    def gone(self, name: Name) -> None:
        """It is gone."""
        self._owner.forget(name)

    def listed(self) -> None:
        """All have been told."""

    async def run(self) -> None:
        """Follow until cancelled."""
        await self.reflector.run()


class _NodeSink:
    """Takes the nodes."""

    def __init__(self, owner: ClusterPolicies) -> None:
        self._owner = owner

    def put(self, name: Name, value: Node) -> None:
        self._owner.node(name, value)

    def gone(self, name: Name) -> None:
        self._owner.node(name, None)

    def listed(self) -> None:
        self._owner.convert_again()


def _condition(problem: str) -> dict[str, str]:
    return {
        "type": ENFORCED,
        "status": "False",
        "reason": "NotInFull",
        "message": problem[:MAX_MESSAGE],
        "lastTransitionTime": now_text(),
    }


def _differs(value: ClusterNetworkPolicy, problem: str) -> bool:
    written = [one for one in value.status.conditions or () if one.type == ENFORCED]
    if not problem:
        return bool(written)
    return [(one.status, one.message) for one in written] != [("False", problem[:MAX_MESSAGE])]
