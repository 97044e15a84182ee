"""A large cluster in etcd: 1,000 nodes in 25 racks, 10,000 pods in 50 namespaces, reflectors."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from libcalico.datastore.interface import Change, Put
from libcalico.model import BlockAffinity, defaults
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import AffinityKey, BlockKey
from libcalico.model.kinds import key_of
from tests.support.explain_world import TIER, document, policy, profile
from tests.web.world import block

NODES, PODS, NAMESPACES, RACKS = 1000, 10_000, 50, 25
REFLECTORS = 3


def changes(nodes: int = NODES, pods: int = PODS) -> list[Change]:
    """The writes that make it."""
    documents: list[dict[str, Any]] = [
        TIER,
        document("BGPConfiguration", "default", nodeToNodeMeshEnabled=False),
        document("BGPPeer", "to-reflectors", nodeSelector="!has(reflector)",
                 peerSelector="has(reflector)"),
        document("BGPPeer", "reflectors", nodeSelector="has(reflector)",
                 peerSelector="has(reflector)"),
        document("IPPool", "pods", cidr="10.64.0.0/12", ipipMode="Never", blockSize=26),
    ]  # fmt: skip
    documents += [_node(number) for number in range(nodes)]
    documents += [profile(f"ns{number}") for number in range(NAMESPACES)]
    documents += [
        policy("only-web", "role == 'db'", f"ns{number}", types=["Ingress"],
               ingress=[{"action": "Allow", "source": {"selector": "role == 'web'"}}])
        for number in range(NAMESPACES)
    ]  # fmt: skip
    documents += [_pod(number, nodes) for number in range(pods)]
    made: list[Change] = []
    for one in documents:
        value = defaults.apply_defaults(resource_from_tree(one, strict=True))
        made.append(Put(key_of(value), value))
    used: dict[int, list[int]] = {}
    for number in range(pods):
        used.setdefault(number % nodes, []).append(number // nodes)
    for owner in range(nodes):
        cidr = _block(owner)
        made.append(Put(BlockKey(ip_network(cidr)), block(cidr, _name(owner), used.get(owner, []))))
        key = AffinityKey(_name(owner), ip_network(cidr))
        made.append(Put(key, BlockAffinity(state="confirmed")))
    return made


def _name(number: int) -> str:
    return f"node-{number:04d}"


def _block(owner: int) -> str:
    return str(ip_network((int(ip_network("10.64.0.0/12").network_address) + owner * 64, 26)))


def _node(number: int) -> dict[str, Any]:
    reflector = number < REFLECTORS
    bgp = {"ipv4Address": f"172.16.{number // 250}.{number % 250 + 1}/16"}
    if reflector:
        bgp["routeReflectorClusterID"] = "224.0.0.1"
    made = document("Node", _name(number), bgp=bgp)
    made["metadata"]["labels"] = {"rack": f"r{number % RACKS:02d}"}
    if reflector:
        made["metadata"]["labels"]["reflector"] = "true"
    return made


def _pod(number: int, nodes: int) -> dict[str, Any]:
    owner = number % nodes
    network = ip_network(_block(owner))
    namespace, role = f"ns{number % NAMESPACES}", "web" if number % 3 else "db"
    pod = f"{role}-{number}"
    made = document(
        "WorkloadEndpoint", f"{_name(owner).replace('-', '--')}-k8s-{pod.replace('-', '--')}-eth0",
        namespace, {"projectcalico.org/namespace": namespace, "role": role},
        orchestrator="k8s", node=_name(owner), pod=pod, endpoint="eth0",
        containerID=f"{number:064d}", interfaceName=f"cali{number:08d}",
        ipNetworks=[f"{network[number // nodes]}/32"], profiles=[f"kns.{namespace}"],
    )  # fmt: skip
    return made
