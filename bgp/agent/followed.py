"""What BGP follows in the datastore, and which of it is this node's to speak for.

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

from libcalico.datastore.interface import Selection
from libcalico.model.keys import Key, ResourceKey


def selections() -> list[Selection]:
    """The objects of the datastore that BGP follows; no block, which changes with each pod.

    Of a node what Calico's agents said is enough (`bgp.cluster.nodes.node_view`).
    """
    families = ("BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool", "BlockAffinity")
    return [Selection("Node", brief=True), *map(Selection, families)]


def ours(key: Key, me: str) -> bool:
    """Whether this agent names what an object asks for in vain."""
    if not isinstance(key, ResourceKey):
        return False
    mine = key.kind == "BGPConfiguration" and key.name in ("default", f"node.{me}")
    return mine or key.kind in ("BGPPeer", "BGPFilter")
