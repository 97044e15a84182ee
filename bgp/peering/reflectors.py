"""Who reflects routes: nodes with a cluster id, or, where asked, nodes chosen automatically.

A full mesh of n nodes is n(n-1)/2 sessions. An operator can make reflectors by hand
(`routeReflectorClusterID` and BGPPeers). Or the annotation `muslin/automatic-reflectors` of
BGPConfiguration `default` lets the mesh turn into reflectors by itself: `true`, or
`above=50 count=3`: with more nodes than that, so many nodes reflect for all others. It is
an annotation because every node must decide alike, and Calico's own nodes ignore it.

  RFL-3  All nodes choose the same reflectors, from the Nodes alone: the oldest ones, so that a
         node that joins changes nothing.
  RFL-4  One node with a cluster id of its own switches the choice off: an operator has planned.
Tested in tests/bgp/test_reflectors.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bgp.cluster.nodes import NodeView, router_id
from bgp.cluster.view import AUTOMATIC_REFLECTORS, ClusterView

ABOVE, COUNT = 50, 3


@dataclass(frozen=True, slots=True)
class Choice:
    """A cluster of more nodes than `above` gets `count` reflectors."""

    above: int = ABOVE
    count: int = COUNT


def requested(text: str) -> Choice | None:
    """The choice that the annotation asks for; None: it asks for none. Raises `ValueError`."""
    words = text.lower().split()
    if not words or words == ["false"]:
        return None
    if words == ["true"]:
        return Choice()
    values = {"above": ABOVE, "count": COUNT}
    for word in words:
        match = re.fullmatch(r"(above|count)=(\d{1,6})", word)
        if match is None or not int(match[2]):
            rule = "true, false, or above=<nodes> count=<reflectors>"
            raise ValueError(f"annotation {AUTOMATIC_REFLECTORS}: {text!r} is not valid: {rule}")
        values[match[1]] = int(match[2])
    return Choice(**values)


def automatic(view: ClusterView) -> tuple[NodeView, ...]:
    """The nodes that reflect in place of the mesh; none: the mesh stays as it is."""
    try:
        choice = requested(view.automatic)
    except ValueError:
        return ()  # named by the plan
    if choice is None:
        return ()  # first: each plan of a thousand asks
    nodes = [node for node in view.nodes.values() if node.addresses]
    if len(nodes) <= choice.above or any(node.cluster_id for node in nodes):
        return ()
    nodes.sort(key=lambda node: (node.created or "9", node.name))
    return tuple(nodes[: choice.count])


def cluster_ids(view: ClusterView) -> dict[str, str]:
    """Node -> cluster id, of all nodes that reflect (RFC 4456 section 7), former ones too."""
    return {**view.former, **chosen(view)}


def chosen(view: ClusterView) -> dict[str, str]:
    """Those that the settings of now make reflectors."""
    identifiers = {node.name: node.cluster_id for node in view.nodes.values() if node.cluster_id}
    identifiers.update((node.name, str(router_id(node))) for node in automatic(view))
    return identifiers
