"""ClusterNetworkPolicies follow a real Kubernetes API into a real etcd."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from controllers.mirror.cluster_policies import ClusterPolicies
from controllers.mirror.policy_conditions import ENFORCED
from libcalico.kubernetes.client import Client
from libcalico.model.keys import ResourceKey
from tests.controllers.running import running
from tests.support.apiserver import ApiRefused, ApiServer
from tests.support.crds import PATH, definitions, wait_served
from tests.support.etcd import Etcd
from tests.support.patience import until, until_asked

GROUP = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
EVERYONE: dict[str, Any] = {"namespaces": {}}


def define(cluster: ApiServer) -> None:
    """Have the kind served."""
    (one,) = [
        one for one in definitions() if one["spec"]["names"]["kind"] == "ClusterNetworkPolicy"
    ]
    cluster.ensure(PATH, one)
    wait_served(cluster, one)


def policy(cluster: ApiServer, name: str, **spec: Any) -> None:
    whole = {"tier": "Admin", "priority": 5, "subject": EVERYONE, **spec}
    cluster.ensure(
        GROUP,
        {
            "apiVersion": "policy.networking.k8s.io/v1alpha2",
            "kind": "ClusterNetworkPolicy",
            "metadata": {"name": name},
            "spec": whole,
        },
    )


def node(cluster: ApiServer, name: str, address: str) -> None:
    cluster.ensure("/api/v1/nodes", {"metadata": {"name": name, "labels": {"zone": "a"}}})
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    cluster.call(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": status},
        content="application/merge-patch+json",
    )


def conditions(cluster: ApiServer, name: str) -> list[dict[str, str]]:
    found = cluster.call("GET", f"{GROUP}/{name}").get("status", {}).get("conditions", [])
    return [one for one in found if one["type"] == ENFORCED]


@pytest.mark.asyncio
@pytest.mark.promise("F-72")
async def test_cluster_policies_follow_the_api_and_say_what_is_not_enforced(
    cluster: ApiServer, stored: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client: Client = cluster.client()
    async with stored.connect() as store:
        part = ClusterPolicies(client, store, ask_again=0.2)
        async with running(part):
            # Without the definition there is nothing to do, and nothing is wrong.
            await until(lambda: part.in_sync)
            define(cluster)
            node(cluster, "n1", "192.168.9.1")
            to_nodes = {"action": "Deny", "to": [{"nodes": {"matchLabels": {"zone": "a"}}}]}
            policy(cluster, "to-nodes", egress=[to_nodes])
            policy(cluster, "plain", ingress=[{"action": "Accept", "from": [EVERYONE]}])
            key = ResourceKey("GlobalNetworkPolicy", "kcnp.to-nodes")
            other = ResourceKey("GlobalNetworkPolicy", "kcnp.plain")

            async def nets() -> list[str]:
                entry = await store.get(key)
                return [] if entry is None else entry.value.spec.egress[0].destination.nets

            async def is_told() -> bool:
                return await nets() == ["192.168.9.1/32"]

            # The node may be heard of after the policies: then one of them is written twice.
            await until_asked(is_told)
            await until_asked(lambda: store.get(other))
            await until(lambda: part.served and part.in_sync)
            entry = await store.get(other)
            assert entry is not None
            assert (entry.value.spec.tier, entry.value.spec.order) == ("kube-admin", 5)
            assert conditions(cluster, "plain") == []

            node(cluster, "n2", "192.168.9.2")

            async def is_told_of_both() -> bool:
                return await nets() == ["192.168.9.1/32", "192.168.9.2/32"]

            await until_asked(is_told_of_both)
            await until(lambda: part.in_sync)
            assert await store.get(other) == entry, "what speaks of no node is not written"

            named = {"action": "Accept", "to": [{"domainNames": ["example.com"]}]}
            policy(cluster, "plain", egress=[named])
            await until(lambda: part.in_sync and bool(conditions(cluster, "plain")))
            (said,) = conditions(cluster, "plain")
            assert said["status"] == "False"
            assert "spec.egress[0].to[0].domainNames" in said["message"]
            policy(cluster, "plain", egress=[])
            await until(lambda: part.in_sync and not conditions(cluster, "plain"))

        # A restart writes nothing.
        again = ClusterPolicies(client, store, ask_again=0.2)
        async with running(again):
            await until(lambda: again.served and again.ready and again.in_sync)
            assert again.writes == 0
            cluster.delete(f"{GROUP}/to-nodes")
            await until(lambda: again.writes == 1 and again.in_sync)
            assert await store.get(key) is None
        cluster.delete(f"{GROUP}/plain")
        await client.close()


@pytest.mark.asyncio
async def test_the_older_kinds_are_named(
    cluster: ApiServer, stored: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    kind = {"kind": "AdminNetworkPolicy", "listKind": "AdminNetworkPolicyList"}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    one = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "adminnetworkpolicies.policy.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "policy.networking.k8s.io",
            "names": {**kind, "plural": "adminnetworkpolicies", "singular": "adminnetworkpolicy"},
            "scope": "Cluster",
            "versions": [version],
        },
    }
    cluster.ensure(PATH, one)
    wait_served(cluster, one)
    old = {
        "apiVersion": "policy.networking.k8s.io/v1alpha1",
        "kind": "AdminNetworkPolicy",
        "metadata": {"name": "fence"},
        "spec": {},
    }
    cluster.ensure("/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies", old)
    client = cluster.client()
    async with stored.connect() as store:
        part = ClusterPolicies(client, store, ask_again=0.2)
        async with running(part):
            await until(lambda: part.older.named == ("AdminNetworkPolicy(fence)",))
    assert "AdminNetworkPolicy(fence)" in caplog.text
    assert "write one with tier Admin" in caplog.text
    cluster.delete(f"{PATH}/adminnetworkpolicies.policy.networking.k8s.io")
    await client.close()


@pytest.mark.asyncio
async def test_without_a_datastore_only_what_is_not_enforced_is_told(cluster: ApiServer) -> None:
    """As where Kubernetes is the datastore: felix reads the policies themselves."""
    define(cluster)
    client = cluster.client()
    names = [{"domainNames": ["example.com"]}]
    policy(cluster, "part", egress=[{"action": "Accept", "to": names}])
    policy(cluster, "whole", ingress=[{"action": "Accept", "from": [EVERYONE]}])
    part = ClusterPolicies(client, None, ask_again=0.2)
    async with running(part):
        await until(lambda: part.in_sync and conditions(cluster, "part"))
        assert "domainNames" in conditions(cluster, "part")[0]["message"]
        assert not conditions(cluster, "whole")
        to_nodes = [{"nodes": {"matchLabels": {"zone": "a"}}}]
        policy(cluster, "part", egress=[{"action": "Accept", "to": to_nodes}])
        await until(lambda: not conditions(cluster, "part"))
    for name in ("part", "whole"):
        cluster.delete(f"{GROUP}/{name}")
    await client.close()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"tier": "Middle"}, "spec.tier"),
        ({"priority": 1001}, "spec.priority"),
        ({"subject": {}}, "spec.subject"),
        ({"ingress": [{"action": "Accept", "from": []}]}, "spec.ingress[0].from"),
        (
            {"egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0"]}]}]},
            "spec.egress[0].to[0].networks[0]",
        ),
    ],
)
def test_the_definition_refuses_and_names_the_field(
    cluster: ApiServer, spec: dict[str, Any], field: str
) -> None:
    define(cluster)
    with pytest.raises(ApiRefused) as refused:
        policy(cluster, "bad", **spec)
    assert field in str(refused.value)
