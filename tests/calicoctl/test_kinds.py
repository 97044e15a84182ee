"""Kinds, aliases and columns: one table each, and they agree with the model."""

from __future__ import annotations

import pytest

from calicoctl import aliases, columns, versions
from libcalico import clusterinfo
from libcalico.errors import UnsupportedKind
from libcalico.model.kinds import KINDS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("pool", "IPPool"),
        ("IPPools", "IPPool"),
        ("WEP", "WorkloadEndpoint"),
        ("no", "Node"),
        ("nos", "Node"),
        ("bp", "BGPPeer"),
        ("bgpconfigs", "BGPConfiguration"),
        ("ClusterInfo", "ClusterInformation"),
        ("felixconfig", "FelixConfiguration"),
        ("pro", "Profile"),
        ("tiers", "Tier"),
        ("policy", "NetworkPolicy"),
        ("POL", "NetworkPolicy"),
        ("np", "NetworkPolicy"),
        ("gnp", "GlobalNetworkPolicy"),
        ("GlobalNetworkPolicies", "GlobalNetworkPolicy"),
        ("netsets", "NetworkSet"),
        ("gnetsets", "GlobalNetworkSet"),
        ("BF", "BGPFilter"),
        ("hep", "HostEndpoint"),
        ("reservations", "IPReservation"),
        ("KubeControllersConfig", "KubeControllersConfiguration"),
        ("nodestatus", "CalicoNodeStatus"),
        ("snp", "StagedNetworkPolicy"),
        ("sgnp", "StagedGlobalNetworkPolicy"),
        ("skpols", "StagedKubernetesNetworkPolicy"),
        ("ipamconfig", "IPAMConfiguration"),
    ],
)
@pytest.mark.promise("M-173")
def test_aliases_in_any_letter_case(text: str, kind: str) -> None:
    assert aliases.kind_of(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("blockaffinities", "BlockAffinity"),
        ("IPAMBlock", "IPAMBlock"),
        ("ipamhandles", "IPAMHandle"),
        ("livemigration", "LiveMigration"),
    ],
)
def test_what_calico_keeps_to_itself_is_refused_by_its_own_name(text: str, kind: str) -> None:
    with pytest.raises(UnsupportedKind, match=f"'{kind}' is internal to Calico"):
        aliases.kind_of(text)


def test_a_word_that_is_no_kind() -> None:
    with pytest.raises(UnsupportedKind, match="resource type 'banana' is not supported"):
        aliases.kind_of("banana")


def test_every_served_kind_is_in_the_model_and_has_columns() -> None:
    assert set(aliases.SERVED) == set(columns.TABLE) <= set(KINDS)
    for kind, table in columns.TABLE.items():
        assert set(table.ps) | set(table.wide) <= set(table.cells), kind


def test_the_client_says_the_version_that_it_writes() -> None:
    assert versions.CALICO == clusterinfo.CALICO_VERSION
