"""Values of the tests of status: nodes, reports, documents, without a datastore."""

from __future__ import annotations

from typing import Any

from bgp.cluster.nodes import DRAIN
from calicoctl.status.facts import Facts, Signs
from ipam.records.pools import Pool
from libcalico.model import Block, Node
from libcalico.model.base.meta import Metadata, now_text
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.node import NodeBGPSpec, NodeSpec
from libcalico.model.resources.nodestatus import (
    BGPDaemonStatus,
    CalicoNodeAgentStatus,
    CalicoNodeBGPStatus,
    CalicoNodePeer,
    CalicoNodeStatus,
    CalicoNodeStatusSpec,
    CalicoNodeStatusStatus,
)
from libcalico.model.resources.status import FelixStatus

NOW = 1_800_000_000.0


def ago(seconds: float) -> str:
    """A time so long before `NOW`, as Calico writes it."""
    from datetime import UTC, datetime

    return now_text(datetime.fromtimestamp(NOW - seconds, UTC))


def node(name: str, address: str, *, drains: bool = False) -> Node:
    annotations = {DRAIN: "true"} if drains else {}
    return Node(
        metadata=Metadata(name=name, annotations=annotations),
        spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address=f"{address}/24")),
    )


def report(
    name: str, peers: dict[str, str], *, age: float = 5.0, period: int = 30, ready: bool = True
) -> CalicoNodeStatus:
    """A report of so many seconds ago; `peers`: the state of each address."""
    listed = [CalicoNodePeer(address, "NodeMesh", state) for address, state in peers.items()]
    daemon = BGPDaemonStatus("Ready" if ready else "NotReady", "v3.32.1")
    return CalicoNodeStatus(
        metadata=Metadata(name=f"report-{name}"),
        spec=CalicoNodeStatusSpec(name, ["Agent", "BGP"], period),
        status=CalicoNodeStatusStatus(
            lastUpdated=ago(age),
            agent=CalicoNodeAgentStatus(birdV4=daemon),
            bgp=CalicoNodeBGPStatus(peersV4=listed),
        ),
    )


def alive() -> Signs:
    """felix's key is there."""
    return Signs(felix=FelixStatus(ago(5)), last=FelixStatus(ago(5)))


def facts(**more: Any) -> Facts:
    """Three nodes that live, of which nothing else is known."""
    nodes = {f"n{number}": node(f"n{number}", f"10.0.0.{number}") for number in (1, 2, 3)}
    values: dict[str, Any] = {
        "now": NOW,
        "nodes": nodes,
        "signs": dict.fromkeys(nodes, alive()),
        **more,
    }
    return Facts(**values)


def documents(**bgp: Any) -> dict[str, dict[str, object]]:
    """The status files of a node where all is well."""
    felix = {
        "time": ago(1),
        "version": "v3.32.1",
        "datastore_connected": True,
        "ready": True,
        "bgp_connected": True,
        "endpoints": 2,
        "endpoints_in_force": 2,
        "networking": "bird",
        "conditions": [],
    }
    peer = {"address": "10.0.0.2", "node": "n2", "state": "up", "info": "Established"}
    speaker = {"time": ago(1), "peers": [peer], "refused": [], "conditions": [], **bgp}
    return {"felix": felix, "bgp": speaker, "cni": {"time": ago(1)}}


def pool(name: str, cidr: IPNetwork, **more: Any) -> Pool:
    return Pool(name, cidr, 26, **more)


def block(cidr: str, used: int) -> Block:
    """A block with so many addresses in use."""
    return Block(cidr=cidr, allocations=[0] * used + [None] * (64 - used))
