"""What a change does to the BGP sessions of every node, told before it is made.

Tested in `tests/calicoctl/test_bgp_plan.py` on a real etcd.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from bgp.cluster.view import ClusterView
from bgp.peering import compare
from bgp.peering.compare import Fate, NodeChange
from bgp.peering.peering import Settings
from bgp.peering.planned import MESH
from libcalico.model.kinds import Resource, key_of

GENTLY = (
    "Sessions between nodes that are removed stay until their successors carry the same routes."
)
RESET = "A session that is reset comes back at once; routes stay meanwhile (graceful restart)."


def plan_of(
    view: ClusterView, resources: Sequence[Resource], *, delete: bool
) -> tuple[NodeChange, ...]:
    """The difference for every node if the resources were applied (or deleted)."""
    changes = [(key_of(one), None if delete else one) for one in resources]
    return compare.of_change(view, changes, Settings())


def as_text(nodes: Sequence[NodeChange]) -> str:
    """Nodes that change, one session a line; then how many there are of each sort."""
    lines, fates = [], Counter[Fate]()
    for node in nodes:
        if not node.sessions and not node.refused:
            continue
        lines.append(f"{node.node}:")
        for each in node.sessions:
            fates[each.fate] += 1
            lines.append(f"  {each.fate.value:8} {each.address}  {each.kind}, AS {each.remote_as}")
            lines += [f"             {detail}" for detail in each.details]
        lines += [f"  refused  {each.source}: {each.reason}" for each in node.refused]
    total = ", ".join(f"{fates[fate]} {fate.value}" for fate in Fate)
    unchanged = sum(node.unchanged for node in nodes)
    lines.append(f"Sessions on {len(nodes)} nodes: {total}, {unchanged} unchanged.")
    mesh = any(
        each.fate is Fate.REMOVED and each.kind == MESH for node in nodes for each in node.sessions
    )
    if mesh and fates[Fate.ADDED]:
        lines.append(GENTLY)
    if fates[Fate.RESET]:
        lines.append(RESET)
    return "".join(f"{line}\n" for line in lines)


def as_json(changes: Sequence[NodeChange]) -> str:
    """The same as one object: `nodes`, each with `sessions`, `unchanged` and `refused`."""
    nodes = [
        {
            "node": node.node,
            "sessions": [
                {
                    "address": str(each.address),
                    "change": each.fate.value,
                    "type": each.kind,
                    "asNumber": each.remote_as,
                    "details": list(each.details),
                }
                for each in node.sessions
            ],
            "unchanged": node.unchanged,
            "refused": [{"peer": one.source, "reason": one.reason} for one in node.refused],
        }
        for node in changes
    ]
    return json.dumps({"nodes": nodes}, indent=2)
