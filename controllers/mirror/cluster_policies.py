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
import logging

from controllers.mirror.mirror import PERIOD, Family, Mirror
from controllers.mirror.objects import CLUSTER_POLICIES, NODES, ClusterNetworkPolicy
from controllers.mirror.older_policies import OlderPolicies
from controllers.mirror.policy_conditions import PolicyConditions
from controllers.queue import WorkQueue
from libcalico.conversion import Conversion, NodeAddresses, convert
from libcalico.conversion.cluster_policy import PREFIX, speaks_of_nodes
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import ApiError, KubernetesError
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Node
from libcalico.kubernetes.reflector import Reflector
from libcalico.model.keys import ResourceKey

log = logging.getLogger(__name__)

ADDRESSES = ("InternalIP", "ExternalIP")
ASK_AGAIN = 30.0
"""Seconds between two looks whether the kind is served."""
GATHER = 0.2
"""Seconds for which changes of nodes are gathered."""


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
        """Without `store` only the policies' status is written."""
        self._client, self._ask_again = client, ask_again
        self._nodes: dict[Name, NodeAddresses] = {}
        self.conditions = PolicyConditions(client)
        self._stale = asyncio.Event()
        self._said = ""
        self.served = False
        self.older = OlderPolicies(client, period)
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
        caught_up = not self._stale.is_set() and not len(self.conditions)
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
            group.create_task(self.older.run())
            while True:
                self.served = await self._is_served()
                if self.served:
                    break
                await asyncio.sleep(self._ask_again)
            group.create_task(self.node_reflector.run())
            group.create_task(self._follow_nodes())
            group.create_task(self.mirror.run())
            group.create_task(self.conditions.run())

    def node(self, name: Name, value: Node | None) -> None:
        """Store a node; None: it is gone."""
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
        for name, value in self.conditions.policies:
            if speaks_of_nodes(value.document):
                self.mirror.put(name, value)

    def convert(self, value: ClusterNetworkPolicy) -> Conversion | None:
        """The policy of ours; what is not enforced becomes a condition. Raises InvalidValue."""
        document = value.document
        if not self.node_reflector.has_listed and speaks_of_nodes(document):
            # The nodes come in a moment; what is stored stays until then.
            return None
        try:
            conversion = convert(document, list(self._nodes.values()))
        except InvalidValue as problem:
            self.conditions.report(value, f"nothing of it is enforced as written: {problem}")
            raise
        self.conditions.report(value, "; ".join(str(one) for one in conversion.dropped))
        return conversion

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
        self._owner.conditions.remember(name, value)
        super().put(name, value)

    def gone(self, name: Name) -> None:
        self._owner.conditions.forget(name)
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
        """Store a policy."""
        self._owner.conditions.remember(name, value)
        try:
            self._owner.convert(value)
        except InvalidValue as problem:
            log.error("not enforced as written: %s", problem, extra={"object": str(name)})

    def gone(self, name: Name) -> None:
        """Remove it."""
        self._owner.conditions.forget(name)

    def listed(self) -> None:
        """Note that the list is complete."""

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
