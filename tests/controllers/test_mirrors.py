"""Policies and profiles follow a real Kubernetes API into a real etcd (MIR-1 to MIR-3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.mirror.mirror import Mirror
from controllers.mirror.mirrored_kinds import ACCOUNT_PROFILES, NAMESPACE_PROFILES, POLICIES
from libcalico.conversion import convert
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.kubernetes.client import Client
from libcalico.model.keys import ResourceKey
from tests.controllers.running import running
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

POLICY_PATH = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
RESOURCES = "/calico/resources/v3/projectcalico.org/"
DEFAULT_DENY: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
FROM_NAMESPACE: dict[str, Any] = {
    "podSelector": {"matchLabels": {"app": "web"}},
    "policyTypes": ["Ingress"],
    "ingress": [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}],
            "ports": [{"port": 80, "endPort": 90}, {"port": 53, "protocol": "UDP"}],
        }
    ],
}


def policy(cluster: ApiServer, space: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return cluster.ensure(POLICY_PATH.format(space), {"metadata": {"name": name}, "spec": spec})


def mirrors(client: Client, store: Datastore, **options: Any) -> list[Mirror[Any]]:
    families: list[Any] = [POLICIES, NAMESPACE_PROFILES, ACCOUNT_PROFILES]
    return [Mirror(family, client, store, **options) for family in families]


async def settled(parts: list[Mirror[Any]]) -> None:
    await until(lambda: all(part.in_sync for part in parts))


@pytest.mark.asyncio
async def test_policies_and_profiles_follow_kubernetes_and_nothing_is_written_twice(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"team": "a"}}})
    accounts = "/api/v1/namespaces/shop/serviceaccounts"
    cluster.ensure(accounts, {"metadata": {"name": "till", "labels": {"role": "pay"}}})
    document = policy(cluster, "shop", "web", FROM_NAMESPACE)
    policy(cluster, "shop", "deny", DEFAULT_DENY)
    key = ResourceKey("NetworkPolicy", "knp.default.web", "shop")
    async with stored.connect() as store:
        client = cluster.client()
        parts = mirrors(client, store)
        async with running(*parts):
            await settled(parts)
            entry = await store.get(key)
            assert entry is not None
            assert entry.value.spec == convert(document).resource.spec
            assert b"knp.default.web" in entry.raw
            space = await store.get(ResourceKey("Profile", "kns.shop"))
            account = await store.get(ResourceKey("Profile", "ksa.shop.till"))
            assert space is not None
            assert account is not None
            assert space.value.spec.labelsToApply["pcns.team"] == "a"
            assert account.value.spec.labelsToApply == {
                "pcsa.role": "pay",
                "pcsa.projectcalico.org/name": "till",
            }
            # A change, and a deletion.
            policy(cluster, "shop", "web", DEFAULT_DENY)
            cluster.delete(POLICY_PATH.format("shop") + "/deny")
            path = f"{RESOURCES}networkpolicies/shop/"
            await until(lambda: stored.keys(path) == [f"{path}knp.default.web"])
            await settled(parts)
            entry = await store.get(key)
            assert entry is not None
            assert entry.value.spec.types == ["Ingress", "Egress"]
        before = stored.keys(), sum(part.writes for part in parts)
        assert before[1] > 0
        again = mirrors(client, store)
        async with running(*again):
            await settled(again)
            assert sum(part.writes for part in again) == 0, "MIR-1: nothing after a restart"
        assert stored.keys() == before[0]
        await client.close()


@pytest.mark.asyncio
async def test_what_others_wrote_stays_and_what_bears_our_names_is_put_right(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("foreign")
    document = policy(cluster, "foreign", "web", FROM_NAMESPACE)
    theirs = convert(document).resource
    async with stored.connect() as store:
        for name in ("theirs", "knp.default.left-over"):
            tree = json.loads(json.dumps(_tree(theirs)))
            tree["metadata"]["name"] = name
            stored.put(f"{RESOURCES}networkpolicies/foreign/{name}", json.dumps(tree))
        stored.put(f"{RESOURCES}profiles/mine", json.dumps(_profile("mine")))
        stored.put(f"{RESOURCES}profiles/kns.gone", json.dumps(_profile("kns.gone")))
        stored.put(f"{RESOURCES}profiles/kns.foreign", b"{not readable")
        client = cluster.client()
        parts = mirrors(client, store, period=1.0)
        async with running(*parts):
            await settled(parts)
            names = {path.rpartition("/")[2] for path in stored.keys(RESOURCES)}
            assert {"theirs", "knp.default.web", "mine", "kns.foreign"} <= names
            assert not {"knp.default.left-over", "kns.gone"} & names
            assert b"pcns" in (stored.get(f"{RESOURCES}profiles/kns.foreign") or b"")
            # An operator changes ours, and notes something beside it: the spec comes back, MIR-3.
            key = ResourceKey("NetworkPolicy", "knp.default.web", "foreign")
            entry = await store.get(key)
            assert entry is not None
            spoilt = json.loads(entry.raw)
            spoilt["spec"]["selector"] = "all()"
            spoilt["metadata"]["annotations"] = {
                **spoilt["metadata"].get("annotations", {}),
                "note": "kept",
            }
            path = f"{RESOURCES}networkpolicies/foreign/knp.default.web"
            stored.put(path, json.dumps(spoilt))
            await until(lambda: b"app == 'web'" in (stored.get(path) or b""))
            assert json.loads(stored.get(path) or b"")["metadata"]["annotations"]["note"] == "kept"
            # And deletes it.
            stored.delete(path)
            await until(lambda: stored.keys(path))
        await client.close()


@pytest.mark.asyncio
async def test_what_happened_while_nobody_watched_is_made_good(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("away")
    policy(cluster, "away", "one", DEFAULT_DENY)
    policy(cluster, "away", "two", DEFAULT_DENY)
    root = f"{RESOURCES}networkpolicies/away/knp.default."
    async with stored.connect() as store:
        client = cluster.client()
        parts = mirrors(client, store)
        async with running(*parts):
            await settled(parts)
            # The API dies; meanwhile nothing is deleted.
            cluster.kill()
            await until(lambda: not any(part.reflector.connected for part in parts))
            assert len(stored.keys(root)) == 2
            cluster.start()
            cluster.delete(POLICY_PATH.format("away") + "/one")
            policy(cluster, "away", "three", DEFAULT_DENY)
            cluster.forget_history()
            await until(lambda: {p[len(root) :] for p in stored.keys(root)} == {"two", "three"})
        cluster.delete(POLICY_PATH.format("away") + "/two")
        again = mirrors(client, store)
        async with running(*again):
            await settled(again)
            assert [p[len(root) :] for p in stored.keys(root)] == ["three"]
        await client.close()


@pytest.mark.asyncio
async def test_nothing_is_deleted_before_both_sides_were_read(
    cluster: ApiServer, stored: Etcd
) -> None:
    token = cluster.account("blind", [])
    stored.put(f"{RESOURCES}profiles/kns.gone", json.dumps(_profile("kns.gone")))
    async with stored.connect() as store:
        client = cluster.client(token)
        part = Mirror(NAMESPACE_PROFILES, client, store)
        async with running(part):
            await until(lambda: "RBAC" in part.reflector.error)
            assert not part.ready
            assert len((await store.list(Selection("Profile", name_prefix="kns."))).entries) == 1
        await client.close()


@pytest.mark.asyncio
async def test_a_write_that_loses_a_race_is_decided_anew(cluster: ApiServer, stored: Etcd) -> None:
    cluster.namespace("race")
    async with stored.connect() as store:
        client = cluster.client()
        racing = _Racing(store)
        part = Mirror(NAMESPACE_PROFILES, client, racing)
        async with running(part):
            await settled([part])
        assert racing.raced
        entry = await store.get(ResourceKey("Profile", "kns.race"))
        assert entry is not None
        assert entry.value.spec.labelsToApply["pcns.projectcalico.org/name"] == "race"
        await client.close()


class _Racing:
    """A store in which another controller is faster once."""

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self.raced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Any) -> int:
        (change,) = changes
        if not self.raced and change.key.name == "kns.race":
            self.raced = True
            other = convert(_namespace("race", {"stale": "yes"})).resource
            await self._store.commit([Put(change.key, other, ABSENT)])
        return await self._store.commit(changes)


def _namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _tree(resource: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(resource)


def _profile(name: str) -> dict[str, Any]:
    return {
        "kind": "Profile",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "uid": "0", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
    }
