"""Whether a node is gone, asked of store and API themselves.

What is followed may lack a node that lives: its object cannot be read, or a watch is behind. So
before anything of a node is taken away, both are asked.
Tested in tests/controllers/test_presence.py.
"""

from __future__ import annotations

from controllers.node_view import kubernetes_name
from controllers.objects import NODES
from libcalico.datastore.interface import Datastore
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
from libcalico.model.keys import ResourceKey


async def is_gone(store: Datastore, client: Client, node: str) -> bool:
    """Whether there is no such Node, or Kubernetes has no longer the one it names.

    A node that cannot be read, or cannot be asked for, is not gone.
    """
    try:
        entry = await store.get(ResourceKey("Node", node))
    except MuslinError:
        return False
    if entry is None:
        return True
    own = kubernetes_name(entry.value)
    if not own:
        return False
    try:
        await client.get(NODES, own)
    except ObjectNotFound:
        return True
    except KubernetesError:
        return False
    return False
