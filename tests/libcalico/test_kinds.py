"""The table of kinds: names, plurals and aliases are Calico's, in any letter case."""

from __future__ import annotations

import pytest

from libcalico.datastore.etcd.keys import key_of_path, path_of
from libcalico.errors import UnsupportedKind
from libcalico.model import KINDS, ResourceKey, kind_named, kind_of_family

# docs/reference/data-model.md#resource-keys (plural, * namespaced) and 6.3 (aliases).
TABLE = """
BGPConfiguration bgpconfigurations bgpconfiguration bgpconfig bgpconfigs
BGPFilter bgpfilters bgpfilter bgpf bgpfs bf bfs
BGPPeer bgppeers bgppeer bgpp bgpps bp bps
ClusterInformation clusterinformations clusterinformation clusterinfo clusterinfos
FelixConfiguration felixconfigurations felixconfiguration felixconfig felixconfigs
GlobalNetworkPolicy globalnetworkpolicies globalnetworkpolicy gnp gnps
GlobalNetworkSet globalnetworksets globalnetworkset gnetsets
HostEndpoint hostendpoints hostendpoint hep heps
IPAMConfiguration ipamconfigurations ipamconfiguration ipamconfig ipamconfigs
IPPool ippools ippool ipp ipps pool pools
IPReservation ipreservations ipreservation reservation reservations
KubeControllersConfiguration kubecontrollersconfigurations kubecontrollersconfiguration \
 kubecontrollersconfig kubecontrollersconfigs
NetworkPolicy* networkpolicies networkpolicy policy policies np pol pols
NetworkSet* networksets networkset netsets
Node nodes node no nos
CalicoNodeStatus caliconodestatuses caliconodestatus nodestatus nodestatuses
Profile profiles profile pro pros
StagedGlobalNetworkPolicy stagedglobalnetworkpolicies stagedglobalnetworkpolicy sgnp sgnps
StagedNetworkPolicy* stagednetworkpolicies stagednetworkpolicy stagedpolicy stagedpolicies snp \
 spol spols
StagedKubernetesNetworkPolicy* stagedkubernetesnetworkpolicies stagedkubernetesnetworkpolicy \
 stagedkubernetespolicy stagedkubernetespolicies sknp skpol skpols
Tier tiers tier
WorkloadEndpoint* workloadendpoints workloadendpoint wep weps
BlockAffinity blockaffinities blockaffinity
LiveMigration* livemigrations livemigration
"""
ROWS = [line.split() for line in TABLE.replace("\\\n", "").strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_a_kind_goes_by_all_its_names(row: list[str]) -> None:
    title, plural, *words = row
    name = title.rstrip("*")
    kind = KINDS[name]
    assert (kind.plural, kind.namespaced) == (plural, title.endswith("*"))
    for word in (name, plural, *words):
        for spelled in (word, word.upper(), word.title(), word.swapcase()):
            assert kind_named(spelled) is kind


def test_the_table_is_whole() -> None:
    assert {row[0].rstrip("*") for row in ROWS} == set(KINDS)
    with pytest.raises(UnsupportedKind, match="'ipamblock'"):
        kind_named("ipamblock")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_key_has_one_path(name: str) -> None:
    kind = KINDS[name]
    key = ResourceKey(name, "a.b", "ns" if kind.namespaced else "")
    middle = "ns/" if kind.namespaced else ""
    path = f"/calico/resources/v3/projectcalico.org/{kind.plural}/{middle}a.b"
    assert path_of(key) == path
    assert key_of_path(path) == key
    assert kind_of_family(kind.family) is kind


def test_the_affinity_of_the_api_is_not_that_of_the_allocator() -> None:
    assert kind_of_family("BlockAffinity") is None
    assert KINDS["BlockAffinity"].family == "BlockAffinityResource"


def test_a_key_by_type_is_the_key_by_name() -> None:
    for kind in KINDS.values():
        if not kind.internal:
            assert ResourceKey.to(kind.type, "one", "space") == (kind.name, "one", "space")
