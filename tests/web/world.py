"""A cluster with one fault for every view, stored in a real etcd, and the status files of a node.

rack a: n1 (reflector), n2; rack b: n3. n2's session with the router of its rack is refused, as its
own word says; n3 says nothing. 10.65.0.1 is leaked, node `gone` holds a block and is no Node, and
pool `small` is full. Policy: only `shop/web` reaches `shop/db`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from felix.explain.world import World
from ipam.admin import check as checks
from ipam.records.pools import from_resource
from ipam.records.snapshot import Snapshot, User
from libcalico.datastore.interface import Change, Put
from libcalico.model import Attribute, Block, BlockAffinity, defaults
from libcalico.model.base.meta import now_text
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import AffinityKey, BlockKey
from libcalico.model.kinds import key_of
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from tests.support.etcd import Etcd
from tests.support.explain_world import DB, TIER, document, pod, profile
from web.facts.facts import Facts
from web.facts.reading import view_of
from web.facts.sessions import sessions_of
from web.facts.words import FILES, Word, of_documents

Document = dict[str, Any]
ELSEWHERE = 1
"""A process-id namespace that is not ours: then the age of a file tells whether it is alive."""


def node(name: str, rack: str, **bgp: Any) -> Document:
    """A node 10.99.0.N in a rack."""
    number = name.removeprefix("n")
    made = document("Node", name, bgp={"ipv4Address": f"10.99.0.{number}/24", **bgp})
    made["metadata"]["labels"] = {"rack": rack}
    return made


def status(name: str, **peers: str) -> Document:
    """A CalicoNodeStatus by which a node reports its sessions: address (with _) to state.

    Once a day, so that it is not too old however long the tests take.
    """
    made = document(
        "CalicoNodeStatus", f"status-{name}", node=name, classes=["Agent", "BGP", "Routes"],
        updatePeriodSeconds=86_400,
    )  # fmt: skip
    listed = [
        {"peerIP": address.strip("_").replace("_", "."), "type": "NodePeer", "state": state,
         "since": "2026-11-27T10:00:00Z"}
        for address, state in peers.items()
    ]  # fmt: skip
    route = {
        "type": "FIB",
        "destination": "10.65.1.0/26",
        "gateway": "10.99.0.1",
        "interface": "eth0",
        "learnedFrom": {"sourceType": "BGPPeer", "peerIP": "10.99.0.1"},
    }
    made["status"] = {
        "lastUpdated": now_text(),
        "bgp": {"peersV4": listed},
        "routes": {"routesV4": [route]},
    }  # fmt: skip
    return made


DOCUMENTS: list[Document] = [
    TIER,
    node("n1", "a", routeReflectorClusterID="224.0.0.1"),
    node("n2", "a"),
    node("n3", "b"),
    document("BGPConfiguration", "default", nodeToNodeMeshEnabled=False),
    document("BGPPeer", "rr-n2", node="n2", peerIP="10.99.0.1", asNumber=64512),
    document("BGPPeer", "rr-n1", node="n1", peerIP="10.99.0.2", asNumber=64512),
    document("BGPPeer", "half", node="n3", peerIP="10.99.0.1", asNumber=64512),
    document("BGPPeer", "tor", node="n2", peerIP="10.99.0.254", asNumber=64500),
    document("IPPool", "pods", cidr="10.65.0.0/16", natOutgoing=True, ipipMode="Never",
             blockSize=26),
    document("IPPool", "small", cidr="10.66.0.0/30", ipipMode="Never", blockSize=30),
    profile("shop"),
    profile("lab"),
    pod("shop/web-0", 6, "n1", role="web"),
    pod("shop/db-0", 8, "n2", role="db"),
    pod("lab/guest", 9, "n1"),
    DB,
    status("n1", _10_99_0_2="Established"),
]  # fmt: skip
ADDRESSES = {"n1": 1, "n2": 2}


def _placed(documents: Iterable[Mapping[str, Any]]) -> list[Document]:
    """Pods with addresses of their node's block."""
    made = []
    for number, each in enumerate(documents):
        copy = json.loads(json.dumps(each))
        if copy["kind"] == "WorkloadEndpoint":
            copy["spec"]["ipNetworks"] = [f"10.65.{ADDRESSES[copy['spec']['node']]}.{number}/32"]
            copy["spec"]["interfaceName"] = f"cali{number}"
        made.append(copy)
    return made


def resources() -> list[Any]:
    """Every resource, with its defaults."""
    return [
        defaults.apply_defaults(resource_from_tree(one, strict=True)) for one in _placed(DOCUMENTS)
    ]


def blocks() -> list[Block]:
    """A block of each node with its pods' addresses, one of a node that is none, a full one."""
    used: dict[str, list[int]] = {"n1": [], "n2": []}
    for each in resources():
        if each.kind == "WorkloadEndpoint":
            used[each.spec.node].append(int(each.spec.ipNetworks[0].split("/")[0].split(".")[3]))
    return [
        block("10.65.1.0/26", "n1", used["n1"]),
        block("10.65.2.0/26", "n2", used["n2"]),
        block("10.65.0.0/26", "gone", [1]),
        block("10.66.0.0/30", "n3", [0, 1, 2, 3]),
    ]


def block(cidr: str, owner: str, ordinals: list[int]) -> Block:
    """A block in which these addresses are allocated."""
    size = ip_network(cidr).num_addresses
    return Block(
        cidr=cidr,
        affinity=f"host:{owner}",
        allocations=[0 if number in ordinals else None for number in range(size)],
        unallocated=[number for number in range(size) if number not in ordinals],
        attributes=[Attribute(None, {"node": owner})] if ordinals else [],
    )


def changes() -> list[Change]:
    """Everything as writes."""
    made: list[Change] = [Put(key_of(one), one) for one in resources()]
    for one in blocks():
        owner = (one.affinity or "").partition(":")[2]
        cidr = ip_network(one.cidr)
        made.append(Put(BlockKey(cidr), one))
        made.append(Put(AffinityKey(owner, cidr), BlockAffinity(state="confirmed")))
    return made


def store(etcd: Etcd, made: list[Change] | None = None) -> None:
    """Write the world, or these changes."""

    async def write() -> None:
        async with etcd.connect() as datastore:
            pending = changes() if made is None else made
            for start in range(0, len(pending), 100):
                await datastore.commit(pending[start : start + 100])

    # In a thread: the driver of a browser has a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(write())).result()


def documents_of_n2(**more: str) -> dict[str, Document]:
    """What the processes of n2 say: the router of the rack refuses the session."""
    writer = {"time": now_text(), "pid": 1, "pid_namespace": ELSEWHERE}
    up = {
        "address": "10.99.0.1",
        "type": "node specific",
        "node": "n1",
        "state": "up",
        "since": "2026-11-27T10:00:00Z",
        "info": "Established",
        "cause": "",
        "seen": "",
        "fix": "",
        "asn": 64512,
        "received": 3,
        "sent": 1,
        "refused": 0,
        "refused_paths": {},
    }
    refused = {
        **up, "address": "10.99.0.254", "node": "", "state": "start", "info": "Connect",
        "asn": 64500, "cause": "refused", "seen": "10.99.0.254 port 179 refuses connections",
        "fix": "start the router's BGP, or correct the address of BGPPeer(tor)", "received": 0,
    }  # fmt: skip
    return {
        "felix": {
            **writer, "ready": True, "conditions": [
                {"object": "NetworkPolicy(shop/old)", "reason": more.get("reason", "no such field")}
            ],
        },
        "bgp": {**writer, "peers": [up, refused], "refused": [], "felix_refused": {},
                "conditions": []},
        "cni": {
            **writer, "node": "n2", "conditions": [], "traces": [
                {"command": "ADD", "subject": "c" * 12, "total_ms": 21.5,
                 "stages": {"choose": 1.5, "store": 12.0, "wire": 5.0, "felix": 3.0}},
                {"command": "ADD", "subject": "d" * 12, "total_ms": 240.0,
                 "stages": {"choose": 1.0, "store": 230.0, "wire": 6.0, "felix": 3.0}},
            ],
        },
    }  # fmt: skip


def write_status(folder: Path, **more: str) -> Path:
    """The status files of n2 in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for room, content in documents_of_n2(**more).items():
        (folder / f"{room}.json").write_text(json.dumps(content))
    return folder


def word_of_n2() -> Word:
    """The same as a word."""
    return of_documents("n2", documents_of_n2(), datetime.now(UTC), FILES)


def facts(*more: Document, words: Mapping[str, Word] | None = None) -> Facts:
    """The facts of this world without any server, with more documents in it."""
    found = resources() + [
        defaults.apply_defaults(resource_from_tree(dict(one), strict=True)) for one in more
    ]
    world = World({key_of(one): one for one in found})
    view = view_of(world, found)
    users = {
        address: (User(f"Workload({key.namespace}/{key.name})", value.spec.node),)
        for key, value in world.of("WorkloadEndpoint")
        for address in world.addresses(key)
    }
    stored = blocks()
    snapshot = Snapshot(
        blocks=tuple(stored),
        affinities={
            AffinityKey((one.affinity or "").partition(":")[2], ip_network(one.cidr)):
            BlockAffinity(state="confirmed")
            for one in stored
        },
        users=users,
        nodes=frozenset(view.nodes),
        pools=tuple(from_resource(one) for one in found if one.kind == "IPPool"),
    )  # fmt: skip
    return Facts(
        world=world,
        view=view,
        topology=sessions_of(view),
        snapshot=snapshot,
        report=checks.check(snapshot),
        statuses={one.spec.node: one for one in found if isinstance(one, CalicoNodeStatus)},
        words={"n2": word_of_n2()} if words is None else words,
    )
