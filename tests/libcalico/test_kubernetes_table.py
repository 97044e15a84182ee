"""Which collections hold what; what our manifest lets a node and the controllers read of them."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from libcalico.datastore.kubernetes.table import Table
from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model.keys import BlockKey, FelixStatusKey, Key, ResourceKey
from libcalico.model.kinds import KINDS

MANIFEST = Path(__file__).parents[2] / "manifests" / "calico.yaml"
UNREAD = frozenset({"kubecontrollersconfigurations"})
"""Of the controllers alone."""


@pytest.mark.parametrize(
    ("key", "plural"),
    [
        (ResourceKey("IPPool", "p"), "ippools"),
        (ResourceKey("IPAMConfiguration", "default"), "ipamconfigs"),
        (ResourceKey("Profile", "kns.a"), "namespaces"),
        (ResourceKey("Profile", "ksa.a.b"), "serviceaccounts"),
        (ResourceKey("Profile", "own"), None),
        (ResourceKey("NetworkPolicy", "a", "b"), "networkpolicies"),
        (ResourceKey("GlobalNetworkPolicy", "kcnp.a"), "clusternetworkpolicies"),
        (ResourceKey("GlobalNetworkPolicy", "a"), "globalnetworkpolicies"),
        (BlockKey(ip_network("10.0.0.0/26")), "ipamblocks"),
        (FelixStatusKey("n1"), None),
        (ResourceKey("LiveMigration", "a", "b"), None),
    ],
)
def test_where_an_object_is(key: Key, plural: str | None) -> None:
    found = Table().of_key(key)
    assert (found.collection.plural if found else None) == plural


def test_policies_of_kubernetes_are_told_from_calicos_by_their_name() -> None:
    table = Table()
    groups = [
        found.collection.group_version
        for name in ("knp.default.a", "a")
        if (found := table.of_key(ResourceKey("NetworkPolicy", name, "n")))
    ]
    assert groups == ["networking.k8s.io/v1", "crd.projectcalico.org/v1"]


@pytest.mark.parametrize(
    ("kind", "name", "refused"),
    [
        ("NetworkPolicy", "knp.default.w", True),
        ("GlobalNetworkPolicy", "kcnp.w", True),
        ("NetworkPolicy", "kcnp.w", False),
        ("StagedNetworkPolicy", "knp.default.w", False),
        ("NetworkPolicy", "default.knp", False),
    ],
)
def test_a_custom_resource_cannot_stand_for_a_policy_of_kubernetes(
    kind: str, name: str, refused: bool
) -> None:
    mapping = Table().of_family(kind)[0]
    tree = {"metadata": {"name": name, "namespace": "n"}}
    if refused:
        with pytest.raises(InvalidValue, match="belong to Kubernetes' own"):
            mapping.key(tree)
    else:
        assert mapping.key(tree) is not None


def test_every_kind_has_a_place_or_none_by_name() -> None:
    table = Table()
    for kind in KINDS.values():
        assert table.of_family(kind.family) or kind.name == "LiveMigration"
    with pytest.raises(UnsupportedKind):
        table.of_family("Banana")


@pytest.mark.promise("F-112")
def test_the_manifest_lets_a_node_list_and_watch_everything() -> None:
    allowed: set[tuple[str, str, str]] = set()
    for one in yaml.load_all(MANIFEST.read_text(), yaml.CSafeLoader):
        if one and (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "calico-node"):
            allowed |= {
                (group, resource, verb)
                for rule in one["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    for group_version, plural in Table().collections():
        if plural not in UNREAD:
            group = group_version if group_version != "v1" else ""
            assert {(group, plural, verb) for verb in ("list", "watch")} <= allowed, plural
