"""The Kubernetes datastore against a real kube-apiserver."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from ipaddress import ip_network
from typing import Any, cast

import pytest
from msgspec.structs import replace

from libcalico.datastore.interface import (
    ABSENT,
    Check,
    CommitConflict,
    Compacted,
    Delete,
    Put,
    Selection,
    revision_of,
)
from libcalico.datastore.syncer import Syncer
from libcalico.errors import DatastoreError, DatastoreUnavailable, InvalidValue
from libcalico.model import (
    AffinityKey,
    Block,
    BlockAffinity,
    BlockKey,
    GlobalNetworkPolicy,
    Handle,
    HandleKey,
    IPPool,
    IPPoolSpec,
    Metadata,
    NetworkPolicy,
    ResourceKey,
)
from libcalico.model.keys import FelixStatusKey, IPAMConfigKey
from libcalico.model.kinds import KINDS
from libcalico.model.resources.ipam import IPAMConfig
from libcalico.model.resources.node import NodeBGPSpec
from libcalico.model.resources.status import FelixStatus
from tests.apiserver import kdd
from tests.support.apiserver import ApiServer
from tests.support.patience import patient, until

pytestmark = pytest.mark.asyncio
POOL = ResourceKey("IPPool", "p1")
CIDR = ip_network("10.65.0.0/26")


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    """The server with Calico's definitions, and nothing in it."""
    kdd.install(api)
    kdd.clean(api)
    return api


def pool(cidr: str = "10.65.0.0/16", **labels: str) -> IPPool:
    return IPPool(
        metadata=Metadata(name="p1", labels=labels, annotations={"a": "b"}),
        spec=IPPoolSpec(cidr=cidr, blockSize=26),
    )


def block() -> Block:
    return Block(
        cidr=str(CIDR),
        affinity="host:n1",
        allocations=[None] * 64,
        unallocated=list(range(64)),
        sequenceNumber=1755856800000000003,
    )


async def test_a_resource_is_created_read_changed_and_deleted(cluster: ApiServer) -> None:
    async with kdd.opened(cluster) as store:
        revision = await store.commit([Put(POOL, pool(zone="a"), ABSENT)])
        entry = await store.get(POOL)
        assert (entry.revision, entry.value.spec.cidr) == (revision, "10.65.0.0/16")
        assert entry.value.metadata.labels == {"zone": "a"}
        assert entry.value.metadata.uid
        assert entry.value.metadata.creationTimestamp
        # As Calico stores it: the metadata in an annotation, foreign labels nowhere else.
        native = cluster.call("GET", f"{kdd.CRD}/ippools/p1")["metadata"]
        packed = json.loads(native["annotations"]["projectcalico.org/metadata"])
        assert packed["labels"] == {"zone": "a"}
        assert packed["annotations"] == {"a": "b"}
        assert "labels" not in native
        assert "name" not in packed
        assert "uid" not in packed
        with pytest.raises(CommitConflict) as caught:
            await store.commit([Put(POOL, pool(), ABSENT)])
        assert caught.value.current[POOL] == entry
        with pytest.raises(CommitConflict):
            await store.commit([Put(POOL, pool(), revision + 1000, entry)])
        second = await store.commit([Put(POOL, pool(zone="b"), revision, entry)])
        assert second > revision
        with pytest.raises(CommitConflict):
            await store.commit([Delete(POOL, revision)])
        await store.commit([Delete(POOL, second)])
        assert await store.get(POOL) is None
        await store.commit([Delete(POOL)])
        with pytest.raises(CommitConflict):
            await store.commit([Delete(POOL, second)])


async def test_ipam_objects_are_stored_as_calico_stores_them(cluster: ApiServer) -> None:
    keys = BlockKey(CIDR), AffinityKey("n1", CIDR), HandleKey("Net.ABC")
    async with kdd.opened(cluster) as store:
        await store.commit(
            [
                Put(keys[0], block(), ABSENT),
                Put(keys[1], BlockAffinity(), ABSENT),
                Put(keys[2], Handle(block={str(CIDR): 1}), ABSENT),
                Put(IPAMConfigKey(), IPAMConfig(strict_affinity=True, maxBlocksPerHost=3)),
            ]
        )
        found = await store.get_many(keys)
        assert found[keys[0]].value == block()
        assert found[keys[1]].value.state == "confirmed"
        assert found[keys[2]].value.block == {str(CIDR): 1}
        settings = (await store.get(IPAMConfigKey())).value
        assert (settings.strict_affinity, settings.auto_allocate_blocks) == (True, False)
        assert settings.maxBlocksPerHost == 3
        stored = cluster.call("GET", f"{kdd.CRD}/ipamblocks/10-65-0-0-26")["spec"]
        assert stored["strictAffinity"] is False
        assert stored["affinity"] == "host:n1"
        claim = cluster.call("GET", f"{kdd.CRD}/blockaffinities/n1-10-65-0-0-26")
        assert claim["spec"]["deleted"] == "false"
        assert claim["metadata"]["labels"]["projectcalico.org/affinity-type"] == "host"
        handle = cluster.call("GET", f"{kdd.CRD}/ipamhandles/net.abc")["spec"]
        assert handle["handleID"] == "Net.ABC"
        listed = await store.list(Selection("BlockAffinity", host="n1"))
        assert [entry.key for entry in listed.entries] == [keys[1]]
        await store.commit([Delete(key, found[key].revision) for key in keys])
        assert await store.get_many(keys) == dict.fromkeys(keys)


async def test_what_is_marked_as_deleted_is_gone_and_may_come_again(cluster: ApiServer) -> None:
    key = HandleKey("h1")
    async with kdd.opened(cluster) as store:
        await store.commit([Put(key, Handle(block={str(CIDR): 1}), ABSENT)])
        path = f"{kdd.CRD}/ipamhandles"
        for again in (True, False):
            cluster.call(
                "PATCH",
                f"{path}/h1",
                {"spec": {"deleted": True}},
                content="application/merge-patch+json",
            )
            assert (await store.list(Selection("Handle"))).entries == []
            if again:
                await store.commit([Put(key, Handle(block={str(CIDR): 2}), ABSENT)])
                assert (await store.get(key)).value.block == {str(CIDR): 2}
        assert await store.get(key) is None
        assert cluster.call("GET", path)["items"] == []


async def test_a_deletion_that_a_reader_completes_is_not_taken_back(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block that went first would come back without its claim."""
    claim, claimed = AffinityKey("n1", CIDR), BlockKey(CIDR)
    async with kdd.opened(cluster) as store, kdd.opened(cluster) as reader:
        await store.commit([Put(claim, BlockAffinity(state="confirmed"), ABSENT)])
        await store.commit([Put(claimed, block(), ABSENT)])
        there = await store.get_many([claim, claimed])
        delete = store._writer.objects.delete

        async def slow(path: str, tree: Any) -> Any:
            if "blockaffinities" in path:
                # Marked as deleted, and not gone yet: who reads it takes it away.
                assert await reader.get(claim) is None
                assert cluster.call("GET", f"{kdd.CRD}/blockaffinities")["items"] == []
            return await delete(path, tree)

        monkeypatch.setattr(store._writer.objects, "delete", slow)
        await store.commit([Delete(key, entry.revision) for key, entry in there.items() if entry])
        assert set((await store.get_many([claim, claimed])).values()) == {None}


async def test_a_commit_that_loses_is_taken_back(cluster: ApiServer) -> None:
    handle, claimed = HandleKey("h1"), BlockKey(CIDR)
    async with kdd.opened(cluster) as store:
        revision = await store.commit([Put(claimed, block(), ABSENT)])
        entry = await store.get(claimed)
        with pytest.raises(CommitConflict) as caught:
            await store.commit(
                [
                    Put(claimed, block(), revision + 1, entry),
                    Put(handle, Handle(block={str(CIDR): 1}), ABSENT),
                ]
            )
        assert caught.value.current[claimed] == entry
        assert await store.get(handle) is None, "the handle came first and went again"
        with pytest.raises(CommitConflict):
            await store.commit([Put(handle, Handle(), ABSENT), Check(claimed, revision + 1)])
        assert await store.get(handle) is None
        # Each object has a revision of its own, and the commit tells it.
        both = await store.commit(
            [
                Put(claimed, block(), revision, entry),
                Put(handle, Handle(block={str(CIDR): 1}), ABSENT),
            ]
        )
        for key in (handle, claimed):
            assert (await store.get(key)).revision == revision_of(both, key)


async def test_policies_of_calico_and_of_kubernetes_are_one_family(
    cluster: ApiServer, space: str
) -> None:
    own = NetworkPolicy(metadata=Metadata(name="mine", namespace=space))
    key = ResourceKey("NetworkPolicy", "mine", space)
    async with kdd.opened(cluster) as store:
        await store.commit([Put(key, own, ABSENT)])
        cluster.ensure(
            f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies",
            {"metadata": {"name": "theirs"}, "spec": {"podSelector": {}}},
        )
        listed = await store.list(Selection("NetworkPolicy", namespace=space))
        assert {entry.key.name for entry in listed.entries} == {"mine", "knp.default.theirs"}
        theirs = ResourceKey("NetworkPolicy", "knp.default.theirs", space)
        found = (await store.get(theirs)).value
        assert (found.spec.order, found.spec.types) == (1000, ["Ingress"])
        stored = cluster.call("GET", f"{kdd.CRD}/namespaces/{space}/networkpolicies/mine")
        packed = json.loads(stored["metadata"]["annotations"]["projectcalico.org/metadata"])
        assert packed["name"] == "mine"
        assert (await store.get(key)).value.metadata.annotations == {}
        with pytest.raises(DatastoreError, match="Kubernetes' own"):
            await store.commit([Put(theirs, found, None)])


async def test_namespaces_and_accounts_are_profiles(cluster: ApiServer, space: str) -> None:
    cluster.ensure(
        f"/api/v1/namespaces/{space}/serviceaccounts",
        {"metadata": {"name": "web.1", "labels": {"team": "x"}}},
    )
    async with kdd.opened(cluster) as store:
        listed = {
            one.key.name: one.value for one in (await store.list(Selection("Profile"))).entries
        }
        assert listed[f"ksa.{space}.web.1"].spec.labelsToApply["pcsa.team"] == "x"
        assert listed[f"kns.{space}"].spec.labelsToApply["pcns.projectcalico.org/name"] == space
        assert "projectcalico-default-allow" in listed
        assert (await store.get(ResourceKey("Profile", f"ksa.{space}.web.1"))) is not None
        assert (await store.get(ResourceKey("Profile", "kns.none"))) is None


async def test_a_node_keeps_what_calico_knows_in_annotations(cluster: ApiServer) -> None:
    kdd.node(cluster, "n1", "10.0.0.1", podCIDR="10.244.1.0/24", podCIDRs=["10.244.1.0/24"])
    key = ResourceKey("Node", "n1")
    async with kdd.opened(cluster) as store:
        entry = await store.get(key)
        value = entry.value
        assert value.metadata.labels == {"role": "a"}
        assert [one.address for one in value.spec.addresses] == ["10.0.0.1"]
        bgp = NodeBGPSpec(
            asNumber=64513, ipv4Address="10.0.0.1/24", routeReflectorClusterID="1.2.3.4"
        )
        metadata = replace(value.metadata, labels={**value.metadata.labels, "own": "yes"})
        fresh = replace(
            value,
            metadata=metadata,
            spec=replace(value.spec, bgp=bgp, ipv4VXLANTunnelAddr="10.65.0.1"),
        )
        # The kubelet writes as well: that is no reason to start again.
        kdd.node(cluster, "n1", "10.0.0.2")
        await store.commit([Put(key, fresh, entry.revision, entry)])
        told = cluster.call("GET", "/api/v1/nodes/n1")["metadata"]
        assert told["annotations"]["projectcalico.org/IPv4Address"] == "10.0.0.1/24"
        assert told["annotations"]["projectcalico.org/ASNumber"] == "64513"
        assert told["labels"] == {"role": "a"}
        now = await store.get(key)
        assert now.value.spec.bgp == bgp
        assert now.value.metadata.labels == {"role": "a", "own": "yes"}
        # But another's write of our part is one.
        with pytest.raises(CommitConflict):
            await store.commit([Put(key, fresh, entry.revision, entry)])
        gone = replace(now.value, spec=replace(now.value.spec, bgp=None, ipv4VXLANTunnelAddr=""))
        await store.commit([Put(key, gone, now.revision, now)])
        assert (await store.get(key)).value.spec.bgp is None
        missing = replace(fresh, metadata=replace(metadata, name="n9"))
        with pytest.raises(DatastoreError, match="kubelet"):
            await store.commit([Put(ResourceKey("Node", "n9"), missing, ABSENT)])
        with pytest.raises(DatastoreError, match="kubectl"):
            await store.commit([Delete(key)])


async def test_a_pod_is_an_endpoint_and_its_attachment_annotations(cluster: ApiServer) -> None:
    kdd.pod(cluster, "web-0", "n1")
    kdd.pod(cluster, "pending")
    kdd.pod(cluster, "host", "n1", hostNetwork=True)
    key = ResourceKey("WorkloadEndpoint", "n1-k8s-web--0-eth0", "default")
    async with kdd.opened(cluster) as store:
        listed = (await store.list(Selection("WorkloadEndpoint", namespace="default"))).entries
        assert [entry.key for entry in listed] == [key]
        value = listed[0].value
        assert value.spec.profiles == ["kns.default", "ksa.default.builder"]
        assert value.spec.ports[0].name == "http"
        assert value.metadata.labels["projectcalico.org/orchestrator"] == "k8s"
        spec = replace(value.spec, containerID="c1", ipNetworks=["10.65.0.5/32"])
        await store.commit([Put(key, replace(value, spec=spec), ABSENT)])
        told = cluster.call("GET", "/api/v1/namespaces/default/pods/web-0")["metadata"][
            "annotations"
        ]
        assert told["cni.projectcalico.org/podIP"] == "10.65.0.5/32"
        assert told["cni.projectcalico.org/podIPs"] == "10.65.0.5/32"
        assert told["cni.projectcalico.org/containerID"] == "c1"
        held = await store.get(key)
        assert (held.value.spec.ipNetworks, held.value.spec.containerID) == (["10.65.0.5/32"], "c1")
        with pytest.raises(CommitConflict):
            await store.commit([Put(key, value, ABSENT)])
        prefixed = Selection("WorkloadEndpoint", "default", name_prefix="n1-k8s-web--0-")
        assert len((await store.list(prefixed)).entries) == 1
        await store.commit([Delete(key, held.revision)])
        told = cluster.call("GET", "/api/v1/namespaces/default/pods/web-0")["metadata"][
            "annotations"
        ]
        assert told["cni.projectcalico.org/podIP"] == ""
        assert (await store.get(key)).value.spec.ipNetworks == []
        lost = ResourceKey("WorkloadEndpoint", "n1-k8s-none-eth0", "default")
        await store.commit([Delete(lost)])
        metadata = replace(value.metadata, name=lost.name)
        with pytest.raises(InvalidValue, match="does not exist"):
            await store.commit([Put(lost, replace(value, metadata=metadata), ABSENT)])


async def test_changes_of_all_feeds_arrive_once_and_in_order(
    cluster: ApiServer, space: str
) -> None:
    async with kdd.opened(cluster) as store:
        syncer = Syncer(store, [Selection("IPPool"), Selection("NetworkPolicy", namespace=space)])
        seen: dict[Any, Any] = {}
        told: list[Any] = []

        async def follow() -> None:
            async for batch in syncer.batches():
                for update in cast(Any, batch.updates):
                    told.append((update.key.name, update.entry and update.entry.value))
                    if update.entry is None:
                        seen.pop(update.key.name, None)
                    else:
                        seen[update.key.name] = update.entry.value

        async with asyncio.TaskGroup() as group:
            task = group.create_task(follow())
            async with asyncio.timeout(patient(30)):
                await until(lambda: syncer.in_sync)
                await store.commit([Put(POOL, pool(zone="a"), ABSENT)])
                cluster.ensure(
                    f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies",
                    {"metadata": {"name": "k"}, "spec": {"podSelector": {}}},
                )
                own = NetworkPolicy(metadata=Metadata(name="mine", namespace=space))
                key = ResourceKey("NetworkPolicy", "mine", space)
                await store.commit([Put(key, own, ABSENT)])
                await until(lambda: set(seen) == {"p1", "knp.default.k", "mine"})
                await store.commit([Delete(key)])
                await until(lambda: "mine" not in seen)
                assert len(told) == 4, "nothing came twice"
            task.cancel()


async def test_every_family_can_be_followed(cluster: ApiServer) -> None:
    """What felix, bgp, cni and the controllers follow, those that are nowhere included."""
    families = [kind.family for kind in KINDS.values()]
    families += ["Block", "BlockAffinity", "Handle", "IPAMConfig", "FelixStatus", "WorkloadStatus"]
    async with kdd.opened(cluster) as store:
        syncer = Syncer(store, [Selection(family) for family in families])
        async with asyncio.timeout(patient(60)):
            async for batch in syncer.batches():
                if batch.in_sync:
                    break
        assert syncer.error == ""
        status = Put(FelixStatusKey("n1"), FelixStatus(time="2026-08-22T10:00:00Z"), ttl=90)
        await store.commit([status])
        assert (await store.list(Selection("FelixStatus"))).entries == []


async def _drain(store: Any) -> None:
    """Watch from the beginning; a server that has just started may need a moment."""
    while True:
        stream = store.watch([Selection("IPPool")], 1)
        try:
            async with aclosing(stream) as found:
                async for _ in found:
                    pass
        except DatastoreUnavailable:
            await asyncio.sleep(0.2)


async def test_a_history_that_is_forgotten_is_compacted(cluster: ApiServer) -> None:
    async with kdd.opened(cluster) as store:
        revision = await store.commit([Put(POOL, pool(), ABSENT)])
        for _ in range(3):
            await store.commit([Put(POOL, pool(zone="b"))])
            await store.commit([Put(POOL, pool(zone="c"))])
        cluster.forget_history()
        cluster.restart()
        async with asyncio.timeout(patient(60)):
            with pytest.raises(Compacted):
                await _drain(store)
        assert revision
        listed = await store.list(Selection("IPPool"))
        assert [entry.key for entry in listed.entries] == [POOL]


async def test_a_policy_that_kubectl_made_is_served(cluster: ApiServer) -> None:
    cluster.ensure(
        f"{kdd.CRD}/globalnetworkpolicies",
        {
            "apiVersion": "crd.projectcalico.org/v1",
            "kind": "GlobalNetworkPolicy",
            "metadata": {"name": "g"},
            "spec": {"selector": "all()"},
        },
    )
    async with kdd.opened(cluster) as store:
        found = await store.get(ResourceKey("GlobalNetworkPolicy", "g"))
        assert isinstance(found.value, GlobalNetworkPolicy)
        assert found.value.metadata.labels["projectcalico.org/tier"] == "default"
