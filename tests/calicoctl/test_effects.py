"""What deletions take with them, on a real etcd."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_network
from typing import Any

from msgspec.structs import replace

from libcalico.datastore.interface import Change, Put
from libcalico.model import (
    Block,
    BlockAffinity,
    Handle,
    Metadata,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey
from libcalico.model.resources.ipam import Attribute
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_commands import P1, TOR, WEP, document
from tests.support.etcd import Etcd

BLOCK = ip_network("10.65.0.0/26")
EMPTY = ip_network("10.65.0.64/26")


def block(cidr: Any, used: int, host: str = "node1") -> Block:
    attributes = [
        Attribute(handle_id="k8s.c1", secondary={"node": host, "pod": "web-0", "namespace": "web"})
    ]
    return Block(
        cidr=str(cidr),
        affinity=f"host:{host}",
        allocations=[0] * used + [None] * (64 - used),
        unallocated=list(range(used, 64)),
        attributes=attributes if used else [],
    )


def fill(etcd: Etcd, used: int) -> None:
    """Two blocks of node1, `used` addresses of the first in use."""
    changes: list[Change] = [
        Put(BlockKey(BLOCK), block(BLOCK, used)),
        Put(BlockKey(EMPTY), block(EMPTY, 0)),
        Put(AffinityKey("node1", BLOCK), BlockAffinity()),
        Put(AffinityKey("node1", EMPTY), BlockAffinity()),
    ]
    if used:
        changes.append(Put(HandleKey("k8s.c1"), Handle(block={str(BLOCK): used})))

    async def write() -> None:
        async with etcd.connect() as store:
            await store.commit(changes)

    asyncio.run(write())


def test_deleting_a_pool_gives_its_empty_blocks_back(ctl: Ctl, etcd: Etcd) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    fill(etcd, 0)
    done = ctl("delete", "pool", "p1")
    assert (done.code, done.err) == (0, "")
    assert etcd.keys("/calico/ipam/") == []


def test_a_block_in_use_outlives_its_pool(ctl: Ctl, etcd: Etcd) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    fill(etcd, 2)
    done = ctl("delete", "pool", "p1")
    assert (done.code, done.out) == (0, "Successfully deleted 1 'IPPool' resource(s)\n")
    assert "IPPool(p1): 2 address(es) are still in use" in done.err
    assert "create the pool again with disabled: true" in done.err
    assert etcd.keys("/calico/ipam/v2/assignment/") == [
        "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26"
    ]
    assert "orphaned" not in ctl("ipam", "show").err


def test_deleting_a_node_takes_everything_of_it(ctl: Ctl, etcd: Etcd) -> None:
    node = document("Node", "node1", bgp={"ipv4Address": "10.99.1.1/24"})
    other = document("Node", "node2", bgp={"ipv4Address": "10.99.1.2/24"})
    felix = document("FelixConfiguration", "node.node1", logSeverityScreen="Info")
    bgp = document("BGPConfiguration", "node.node1", logSeverityScreen="Info")
    documents = "\n---\n".join([P1, node, other, felix, bgp, TOR, WEP])
    assert ctl("apply", "-f", "-", stdin=documents).err == ""
    fill(etcd, 2)
    assert ctl("delete", "node", "node1").out == "Successfully deleted 1 'Node' resource(s)\n"
    left = [key.rpartition("v3/")[2] for key in etcd.keys("/calico/resources/")]
    assert not [key for key in left if "node1" in key or "tor" in key]
    assert "projectcalico.org/nodes/node2" in left
    assert [key for key in etcd.keys("/calico/ipam/") if "/host/" in key] == []


def test_a_node_with_more_endpoints_than_one_commit_takes(ctl: Ctl, etcd: Etcd) -> None:
    node = document("Node", "node1", bgp={"ipv4Address": "10.99.1.1/24"})
    hosts = [
        document("HostEndpoint", f"h{index}", node=f"node{index % 2 + 1}", interfaceName="eth0")
        for index in range(4)
    ]
    ctl("apply", "-f", "-", stdin="\n---\n".join([node, *hosts]))
    pods = [replace(wep(), pod=f"web-{index}") for index in range(150)]
    endpoints = [
        WorkloadEndpoint(
            metadata=Metadata(name=f"node1-k8s-{spec.pod.replace('-', '--')}-eth0", namespace="d"),
            spec=spec,
        )
        for spec in pods
    ]

    async def write() -> None:
        async with etcd.connect() as store:
            for start in range(0, len(endpoints), 100):
                await store.commit(
                    [
                        Put(ResourceKey("WorkloadEndpoint", one.metadata.name, "d"), one)
                        for one in endpoints[start : start + 100]
                    ]
                )

    asyncio.run(write())
    assert ctl("delete", "node", "node1").code == 0
    left = [key.rpartition("v3/")[2] for key in etcd.keys("/calico/resources/")]
    assert [key for key in left if "endpoints" in key] == [
        "projectcalico.org/hostendpoints/h1",
        "projectcalico.org/hostendpoints/h3",
    ]


def wep() -> WorkloadEndpointSpec:
    return WorkloadEndpointSpec(orchestrator="k8s", node="node1", endpoint="eth0")


def test_what_a_write_fills_in(ctl: Ctl) -> None:
    felix = document("FelixConfiguration", "default", logSeverityScreen="Info")
    ctl("apply", "-f", "-", stdin=f"{felix}\n---\n{WEP}")
    spec = json.loads(ctl("get", "felixconfig", "default", "-o", "json").out)["spec"]
    assert (spec["floatingIPs"], spec["bpfConnectTimeLoadBalancing"]) == ("Disabled", "TCP")
    assert spec["bpfHostNetworkedNATWithoutCTLB"] == "Enabled"
    shown = json.loads(ctl("get", "wep", "node1-k8s-web--0-eth0", "-o", "json").out)
    assert shown["metadata"]["labels"] == {
        "projectcalico.org/namespace": "default",
        "projectcalico.org/orchestrator": "k8s",
    }


def test_a_tier_goes_only_when_it_is_empty(ctl: Ctl) -> None:
    tier = document("Tier", "secure", order=10)
    staged = document("StagedGlobalNetworkPolicy", "s1", tier="secure", selector="all()")
    assert ctl("apply", "-f", "-", stdin=f"{tier}\n---\n{staged}").code == 0
    done = ctl("delete", "tier", "secure")
    assert done.code == 1
    assert "it holds 1 StagedGlobalNetworkPolicy resource(s)" in done.err
    assert ctl("delete", "sgnp", "s1").code == 0
    assert ctl("delete", "tier", "secure").code == 0
    for name in ("default", "kube-admin", "kube-baseline"):
        assert "it is built in" in ctl("delete", "tier", name).err


def test_a_stored_pool_whose_cidr_is_none_can_be_shown_mended_and_deleted(
    ctl: Ctl, etcd: Etcd
) -> None:
    path = "/calico/resources/v3/projectcalico.org/ippools/bad"
    bad = document("IPPool", "bad", cidr="10.66.0.0/99")
    good = document("IPPool", "bad", cidr="10.66.0.0/16")
    etcd.put(path, bad)
    assert "10.66.0.0/99" in ctl("get", "pools", "-o", "wide").out
    assert ctl("apply", "-f", "-", stdin=P1).err == ""
    for command in (("ipam", "show"), ("ipam", "show", "--show-blocks"), ("delete", "node", "n")):
        assert "unexpected" not in ctl(*command).err
    assert "found 1 problems" in ctl("ipam", "check").out
    split = ctl("ipam", "split", "2", "--name", "bad")
    assert (split.code, "unexpected" in split.err) == (1, False)
    assert ctl("apply", "-f", "-", stdin=document("IPPool", "bad", cidr="10.65.8.0/24")).code == 1
    assert ctl("replace", "-f", "-", stdin=good).err == ""
    etcd.put(path, bad)
    done = ctl("delete", "pool", "bad")
    assert (done.code, done.err) == (0, "")


def test_a_pool_that_cannot_be_read_gives_its_empty_blocks_back_when_it_goes(
    ctl: Ctl, etcd: Etcd
) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    fill(etcd, 0)
    tree = json.loads(P1)
    tree["spec"]["natOutgoing"] = "perhaps"
    etcd.put("/calico/resources/v3/projectcalico.org/ippools/p1", json.dumps(tree))
    done = ctl("delete", "pool", "p1")
    assert (done.code, done.err) == (0, "")
    assert etcd.keys("/calico/ipam/") == []
