"""ClusterNetworkPolicies: only read, and some of them depend on the cluster's nodes.

A peer that is `nodes` is the addresses of the nodes that its labels select. So the nodes are
listed before such a policy is, and followed while there is one that is watched; when addresses or
labels of nodes change, those policies are sent anew. Otherwise nodes are not followed for this.
Before the nodes are known such a rule denies, or allows nothing.
Tested in tests/apiserver/test_kdd_cluster_policies.py; the conversion in
tests/libcalico/test_cluster_policy.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from libcalico.conversion import NodeAddresses
from libcalico.conversion import cluster_policy as convert
from libcalico.conversion.cluster_policy import policy_name, speaks_of_nodes
from libcalico.datastore.interface import Selection
from libcalico.datastore.kubernetes.mapping import Asked, Collection, Place, metadata
from libcalico.datastore.kubernetes.metadata import Tree, native_metadata
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import NODES, Node
from libcalico.kubernetes.reflector import Reflector
from libcalico.model import codec
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import Key, ResourceKey
from libcalico.process.tasks import beside

GROUP_VERSION = "policy.networking.k8s.io/v1alpha2"
KIND = "GlobalNetworkPolicy"
PREFIX = policy_name("")
ADDRESSES = ("InternalIP", "ExternalIP")
GATHER = 0.2
"""Seconds for which changes of nodes are gathered: a cluster that starts changes all of them."""


class ClusterPolicies:
    """The mapping of one store. `nodes` is None until they have been read."""

    collection = Collection(
        GROUP_VERSION, "clusternetworkpolicies", "ClusterNetworkPolicy", optional=True
    )

    def __init__(self) -> None:
        self.nodes: list[NodeAddresses] | None = None
        self.followed = 0
        """How many watches keep `nodes` as they are."""
        self.needs_nodes = asyncio.Event()
        """Some policy was seen that speaks of nodes."""

    def place(self, key: Key) -> Place | None:
        """The place by the key's name, without its prefix."""
        assert isinstance(key, ResourceKey)
        return Place(key.name[len(PREFIX) :]) if key.name.startswith(PREFIX) else None

    def key(self, tree: Tree) -> Key | None:
        """The key of the policy."""
        return ResourceKey(KIND, policy_name(metadata(tree).get("name", "")))

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The v3 form of the policy, with the nodes that are known."""
        assert isinstance(key, ResourceKey)
        if speaks_of_nodes(tree):
            self.needs_nodes.set()
        value = convert(tree, self.nodes)[0]
        shown = msgspec.convert(native_metadata(tree, key.name, key.namespace), Metadata)
        return codec.encode_value(key, msgspec.structs.replace(value, metadata=shown))

    def asked(self, selection: Selection) -> Asked:
        """Ask for all of them."""
        return Asked()

    def lacks_nodes(self, trees: Sequence[Tree]) -> bool:
        """Whether nodes must be read before these are converted."""
        return not self.followed and any(speaks_of_nodes(tree) for tree in trees)

    async def read_nodes(self, client: Client) -> None:
        """Read the nodes. Raises KubernetesError."""
        addresses, token = list[NodeAddresses](), ""
        while True:
            page = await client.page(NODES, token=token)
            addresses += map(addresses_of, page.items)
            token = page.token
            if not token:
                break
        self.nodes = addresses

    async def follow_nodes(self, client: Client, tell: Callable[[], Awaitable[None]]) -> None:
        """Follow the nodes from when a policy needs them; `tell` is called when they change."""
        await self.needs_nodes.wait()
        table = _Table()
        reflector = Reflector(client, NODES, table)
        self.followed += 1
        try:
            async with beside(reflector.run()):
                while True:
                    await table.changed.wait()
                    await asyncio.sleep(GATHER)
                    table.changed.clear()
                    self.nodes = list(table.known.values())
                    await tell()
        finally:
            self.followed -= 1


class Speaking:
    """The policies of one watch that depend on nodes, as last seen."""

    def __init__(self, mapping: ClusterPolicies, path: str) -> None:
        self.mapping, self.path = mapping, path
        self.trees: dict[Key, Tree] = {}
        self._seeded = False

    def note(self, key: Key, tree: Tree | None) -> None:
        """Note the state of a policy; None: it is gone."""
        if tree is not None and speaks_of_nodes(tree):
            self.trees[key] = tree
        else:
            self.trees.pop(key, None)

    async def seed(self, client: Client) -> None:
        """Read once what was there before the watch. Raises KubernetesError."""
        if self._seeded:
            return
        answer = msgspec.json.decode(await client.request("GET", self.path))
        for tree in answer.get("items") or ():
            if (key := self.mapping.key(tree)) is not None:
                self.note(key, tree)
        self._seeded = True


def addresses_of(node: Node) -> NodeAddresses:
    """Labels and addresses of a node, for `nodes` peers."""
    listed = tuple(one for kind in ADDRESSES for one in node.addresses(kind))
    return NodeAddresses(node.metadata.labels or {}, listed)


class _Table:
    """Sink of the nodes. `changed` is set once all are known, and at every change after that."""

    def __init__(self) -> None:
        self.known: dict[Name, NodeAddresses] = {}
        self.changed = asyncio.Event()
        self._listed = False

    def put(self, name: Name, value: Node) -> None:
        """Note the state of a node."""
        addresses = addresses_of(value)
        if self.known.get(name) != addresses:
            self.known[name] = addresses
            self._tell()

    def gone(self, name: Name) -> None:
        """Note that a node is gone."""
        if self.known.pop(name, None) is not None:
            self._tell()

    def listed(self) -> None:
        """Note that the list is complete."""
        self._listed = True
        self._tell()

    def _tell(self) -> None:
        if self._listed:
            self.changed.set()
