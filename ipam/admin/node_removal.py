"""A node leaves the cluster: what it held, what belongs to it, and then the Node itself.

Calico's client library does the same for every deletion of a Node
(docs/reference/data-model.md#side-effects-of-writes); any writer must, or addresses of removed
nodes stay taken. Every step is guarded or may be repeated: a writer that is interrupted simply
starts again, for the Node goes last.
Tested in tests/calicoctl/test_effects.py and tests/controllers/test_nodes.py.
"""

from __future__ import annotations

from ipam.admin.maintenance import release_host
from libcalico.datastore.capabilities import Refusing
from libcalico.datastore.interface import Change, Datastore, Delete, Entry, Selection
from libcalico.model.keys import ResourceKey

DELETIONS = 100
"""How many objects of a removed node go in one commit: etcd takes 128 operations."""


async def clean_up(store: Datastore, node: str) -> None:
    """Everything of a node but its Node object.

    Raises DatastoreError; before anything is changed where the store may not delete the Node.
    """
    if isinstance(store, Refusing):
        store.refuse(Delete(ResourceKey("Node", node)))
    await release_host(store, node)
    for kind in ("WorkloadEndpoint", "BGPPeer"):
        await _delete_of(store, kind, node)
    for kind in ("FelixConfiguration", "BGPConfiguration"):
        await store.commit([Delete(ResourceKey(kind, f"node.{node}"))])
    await _delete_of(store, "HostEndpoint", node)


async def remove(store: Datastore, entry: Entry) -> None:
    """A node and all that is its own; the Node only as it was seen.

    Raises CommitConflict when the Node was written meanwhile, DatastoreError.
    """
    await clean_up(store, entry.value.metadata.name)
    await store.commit([Delete(entry.key, entry.revision)])


async def _delete_of(store: Datastore, kind: str, node: str) -> None:
    listing = await store.list(Selection(kind))
    gone: list[Change] = [
        Delete(entry.key) for entry in listing.entries if entry.value.spec.node == node
    ]
    for start in range(0, len(gone), DELETIONS):
        await store.commit(gone[start : start + DELETIONS])
