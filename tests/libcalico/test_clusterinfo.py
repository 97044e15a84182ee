"""What must exist before anything else, also when many nodes start at once."""

from __future__ import annotations

import asyncio
from importlib import metadata as distribution

import msgspec
import pytest

from libcalico import clusterinfo
from libcalico.clusterinfo import KEY, ensure_initialized, merge_cluster_type
from libcalico.datastore.interface import Selection
from libcalico.model import ClusterInformation, ClusterInformationSpec, Metadata
from tests.support.etcd import Etcd

pytestmark = pytest.mark.asyncio
PATH = "/calico/resources/v3/projectcalico.org/clusterinformations/default"


async def test_cluster_information_and_tiers_are_made(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await asyncio.gather(*(ensure_initialized(store, "bgp") for _ in range(5)))
        await ensure_initialized(store, "k8s,bgp")
        entry = await store.get(KEY)
        assert entry is not None
        spec = entry.value.spec
        assert spec.calicoVersion == "v3.33.1"
        assert spec.clusterType == "bgp,k8s"
        assert spec.datastoreReady is True
        assert len(spec.clusterGUID) == 32
        int(spec.clusterGUID, 16)
        assert "muslin/version" in entry.value.metadata.annotations
        tiers = (await store.list(Selection("Tier"))).entries
        assert [
            (e.value.metadata.name, e.value.spec.order, e.value.spec.defaultAction) for e in tiers
        ] == [
            ("default", 1000000, "Deny"),
            ("kube-admin", 1000, "Pass"),
            ("kube-baseline", 10000000, "Pass"),
        ]
        assert b'"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}' in tiers[0].raw


async def test_a_second_start_writes_nothing(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await ensure_initialized(store, "bgp")
        before = etcd.revision()
        await ensure_initialized(store, "bgp")
        assert etcd.revision() == before


async def test_a_locked_datastore_stays_locked(etcd: Etcd) -> None:
    info = ClusterInformation(
        metadata=Metadata(name="default"),
        spec=ClusterInformationSpec(clusterGUID="a" * 32, datastoreReady=False),
    )
    etcd.put(PATH, msgspec.json.encode(info))
    async with etcd.connect() as store:
        await ensure_initialized(store, "k8s")
        entry = await store.get(KEY)
    assert entry is not None
    assert entry.value.spec.datastoreReady is False
    assert entry.value.spec.clusterGUID == "a" * 32


async def test_types_are_merged_in_order() -> None:
    assert merge_cluster_type("", "bgp") == "bgp"
    assert merge_cluster_type("k8s,bgp", "bgp, kubeadm") == "k8s,bgp,kubeadm"
    assert clusterinfo.our_version() == distribution.version("muslin")


async def test_a_command_line_does_not_say_which_version_the_cluster_runs(etcd: Etcd) -> None:
    """Else Calico's own command line of an older cluster would refuse it (docs/interop.md)."""
    async with etcd.connect() as store:
        await ensure_initialized(store, "", version="")
        entry = await store.get(KEY)
        assert entry is not None
        assert entry.value.spec.calicoVersion == ""
        assert entry.value.spec.clusterGUID
        assert entry.value.metadata.annotations == {}
