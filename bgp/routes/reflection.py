"""Route reflection (RFC 4456) and who else hears of a learned path. Pure.

A node with a cluster id reflects: what a client said goes to all iBGP peers, what another
iBGP peer said goes to the clients. An external path goes to everybody, an internal one to
external peers. No route goes back to the peer that it came from.

  RFL-1  A reflected path keeps its next hop, and carries ORIGINATOR_ID and our cluster id in
         front of CLUSTER_LIST: a path that comes back is known as ours, and dropped.
  RFL-2  Without a cluster id no internal path is told to an internal peer.
Tested in tests/bgp/test_reflection.py.
"""

from __future__ import annotations

from ipaddress import IPv4Address

from bgp.routes.bestpath import Candidate

NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED = "65535:65281", "65535:65282", "65535:65283"


def is_client(own_cluster: str, peer_cluster: str, internal: bool) -> bool:
    """Whether a peer is our client: a node outside our cluster, in our AS."""
    return internal and bool(own_cluster) and peer_cluster != own_cluster


def passes(path: Candidate, *, internal: bool, client: bool, reflects: bool) -> bool:
    """Whether a path may be told to a session of this kind (RFC 4456 section 6, RFC 1997)."""
    communities = path.attributes.communities
    if NO_ADVERTISE in communities:
        return False
    if not internal and (NO_EXPORT in communities or NO_EXPORT_SUBCONFED in communities):
        return False
    if len(path.attributes.as_path) != path.attributes.as_path_length:
        return False  # it holds an AS_SET: not to be passed on (RFC 9774)
    if not internal or not path.source.internal:
        return True
    return reflects and (path.source.client or client)


def marks(path: Candidate, cluster_id: str) -> tuple[IPv4Address, tuple[str, ...]]:
    """ORIGINATOR_ID and CLUSTER_LIST of a path that we reflect (RFL-1)."""
    originator = path.attributes.originator_id or path.source.router_id
    return originator, (cluster_id, *path.attributes.cluster_list)
