"""Changes of a small cluster, drawn by chance: what operators, kubelets and controllers write.

The claims stand from the beginning: felix remembers a used block whose claim went, and a fresh
one does not know it (CLB-1). A backup without the claim would be such a case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from felix.calc.graph import CLUSTER
from libcalico.datastore.interface import Change, Delete, Put
from libcalico.model import (
    AffinityKey,
    BlockAffinity,
    ClusterInformation,
    ClusterInformationSpec,
    IPPool,
    IPPoolSpec,
    Key,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
)
from tests.felix import policy_objects as objects

NODES = (objects.ME, "n2", "n3")
ROLES = ("a", "b", "c")


def beginning() -> list[Change]:
    """What each cluster has: felix programs nothing without it."""
    ready = ClusterInformation(
        metadata=Metadata(name="default"),
        spec=ClusterInformationSpec(clusterGUID="g", datastoreReady=True),
    )
    puts = [Put(CLUSTER, ready), Put(*objects.namespace("default"))]
    nodes = [_node(number, 0) for number in range(len(NODES))]
    return [*puts, *nodes, *map(_claim, range(len(NODES))), _pool(0, "Never")]


def drawn(chance: random.Random) -> Sequence[Change]:
    """The changes of one transaction."""
    number = chance.randrange(6)
    match chance.randrange(6):
        case 0 | 1:
            return _pod(number, chance)
        case 2:
            return _kept(chance, _policy(number, chance))
        case 3:
            nets = [f"192.0.2.{chance.randrange(200)}/32" for _ in range(3)]
            labels = {"role": chance.choice(ROLES)}
            return _kept(chance, objects.global_network_set(f"s{number}", nets, labels))
        case 4:
            return drawn_node(chance)
        case _:
            return [_pool(chance.randrange(2), chance.choice(("Never", "Always", "CrossSubnet")))]


def drawn_node(chance: random.Random) -> Sequence[Change]:
    """A change of a Node, which no family but its own tells; it stays."""
    return [_node(chance.randrange(len(NODES)), chance.randrange(3))]


def _kept(chance: random.Random, made: tuple[Key, Any]) -> list[Change]:
    """The object, or that it is gone."""
    key, value = made
    return [Put(key, value)] if chance.random() < 0.7 else [Delete(key)]


def _claim(number: int) -> Change:
    return Put(AffinityKey(NODES[number], ip_network(f"10.65.{number}.0/26")), BlockAffinity())


def _pod(number: int, chance: random.Random) -> list[Change]:
    user = chance.choice(NODES)
    labels = {"role": chance.choice(ROLES)}
    made = objects.pod(f"p{number}", f"10.65.{number % 3}.{number}", labels, node=user)
    return _kept(chance, made)


def _policy(number: int, chance: random.Random) -> tuple[Key, Any]:
    here, there = chance.choice(ROLES), chance.choice(ROLES)
    allowed = objects.allow(source={"selector": f"role == '{there}'"})
    return objects.policy(f"q{number}", selector=f"role != '{here}'", ingress=[allowed])


def _node(number: int, tunnel: int) -> Change:
    end = f"10.65.{number}.{60 + tunnel}" if tunnel else ""
    bgp = NodeBGPSpec(ipv4Address=f"10.0.0.{number + 1}/24", ipv4IPIPTunnelAddr=end)
    name = NODES[number]
    value = Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=bgp))
    return Put(ResourceKey("Node", name), value)


def _pool(number: int, ipip: str) -> Change:
    spec = IPPoolSpec(cidr=f"10.{65 + number}.0.0/16", ipipMode=ipip, natOutgoing=True)
    value = IPPool(metadata=Metadata(name=f"pool{number}"), spec=spec)
    return Put(ResourceKey("IPPool", f"pool{number}"), value)
