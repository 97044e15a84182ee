"""A session that this node shall hold, and what this node brings to all of them: plain values.

Tested in tests/bgp/test_peering.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bgp.cluster.nodes import NodeView
from bgp.peering.passwords import Passwords, SecretRef
from bgp.routes.audiences import Manner, NextHop
from bgp.speaker.interface import DEFAULT_MAX_PREFIXES, IPAddress, Peer

MESH, GLOBAL, NODE = "node-to-node mesh", "global", "node specific"


@dataclass(frozen=True, slots=True)
class PlannedPeer:
    """A session and what it is: `kind` as `calicoctl node status` names it.

    `in_cluster`: the peer is a node of this cluster (felix allows its routes less), named
    `node`. `allowed_local_as`: how often our AS number may stand in a path from it. `filters`:
    its BGPFilters in order. `client`: we reflect for it, with our cluster id `own_cluster`.
    `joins`: we reflect only since a moment ago, and may have joined its cluster.
    `reachable_by`: the address over which it is reached, where it is not on our networks.
    """

    peer: Peer
    kind: str
    in_cluster: bool
    allowed_local_as: int = 0
    node: str = ""
    filters: tuple[str, ...] = ()
    next_hop: NextHop = NextHop.AUTO
    client: bool = False
    own_cluster: str = ""
    reachable_by: IPAddress | None = None
    joins: bool = False

    @property
    def manner(self) -> Manner:
        """The manner in which routes are announced to the session."""
        peer = self.peer
        return Manner(peer.families, peer.internal, self.client, self.filters, self.next_hop)


@dataclass(frozen=True, slots=True)
class Local:
    """This node's side of every session. `secrets` collects the passwords that are asked for."""

    node: NodeView
    asn: int
    port: int
    identifier: IPv4Address
    hold_time: int
    max_prefixes: int = DEFAULT_MAX_PREFIXES
    listen_any: bool = False
    clusters: dict[str, str] = field(default_factory=dict)
    former: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()
    passwords: Passwords = field(default_factory=Passwords)
    secrets: set[SecretRef] = field(default_factory=set)
