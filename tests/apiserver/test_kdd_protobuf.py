"""Pods and Nodes in protobuf say the same as in JSON: lists, watches, and what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from bgp.cluster.nodes import node_view
from libcalico.datastore.interface import Compacted, Event, Listing, Selection
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.errors import PermissionDenied
from tests.apiserver import kdd
from tests.apiserver.kubelet_report import register
from tests.apiserver.pod_life import PodLife
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG

REFLECTOR = "projectcalico.org/RouteReflectorClusterID"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


@contextlib.asynccontextmanager
async def both(api: ApiServer, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Two stores: the first asks for protobuf, the second for JSON alone."""
    async with kdd.opened(api, **options) as packed, kdd.opened(api, **options) as plain:
        for family in ("Node", "WorkloadEndpoint"):
            for mapping in plain._table.of_family(family):
                assert mapping.collection.fields is not None
                mapping.collection = replace(mapping.collection, fields=None)
        yield packed, plain


def rich(space: str, name: str, metadata: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod with all that is read of one."""
    ports = [
        {"name": "http", "containerPort": 8080},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.9"},
        {"containerPort": 99},
    ]
    first = {"name": "i", "image": "none", "ports": [{"name": "early", "containerPort": 7}]}
    return {
        "metadata": {"name": name, "namespace": space, **metadata},
        "spec": {
            "nodeName": "n-2",
            "serviceAccountName": "builder",
            "containers": [
                {"name": "c", "image": "none", "ports": ports},
                {"name": "d", "image": "none"},
            ],
            "initContainers": [first],
            **spec,
        },
    }


def have(api: ApiServer, space: str) -> None:
    """Pods and nodes of every kind."""
    path = f"/api/v1/namespaces/{space}/pods"
    prefix = "cni.projectcalico.org/"
    annotations = {
        f"{prefix}floatingIPs": '["192.0.2.1"]',
        f"{prefix}allowedSourcePrefixes": '["10.9.0.0/16"]',
        f"{prefix}podIP": "10.65.0.9/32",
        "k8s.v1.cni.cncf.io/network-status": "[]",
        "long": "ä" * 300,
    }
    labels = {"app": "web", "empty": ""}
    rest = {"labels": labels, "annotations": annotations, "generateName": "rich-"}
    api.ensure(path, rich(space, "rich", rest))
    api.ensure(path, rich(space, "plain", {}))
    api.ensure(path, rich(space, "host", {}, hostNetwork=True, containers=rich("", "", {})
        ["spec"]["containers"][1:]))  # fmt: skip
    kdd.pod(api, "unbound", space=space)
    life = PodLife(api, space, "web-1", "n-2", "10.65.0.1")
    life.live()
    life.label(tier="front")
    api.call("DELETE", f"{path}/web-1")
    kdd.node(api, "n-2", podCIDRs=["10.244.3.0/24", "fd00:3::/64"], podCIDR="10.244.3.0/24")
    kdd.node(api, "n-3", "2001:db8::3")


@pytest.fixture(autouse=True)
def _nothing_left(api: ApiServer, space: str) -> Iterator[None]:
    yield
    kdd.clean(api)
    kdd.no_pods(api, space)


def entries(listing: Listing) -> list[tuple[object, bytes, int, object]]:
    return [(one.key, one.raw, one.revision, one.value) for one in listing.entries]


@pytest.mark.asyncio
async def test_a_list_says_the_same(api: ApiServer, space: str) -> None:
    have(api, space)
    async with both(api) as (packed, plain):
        for selection in (
            Selection("WorkloadEndpoint", space),
            Selection("WorkloadEndpoint", live=True),
            Selection("WorkloadEndpoint", name_prefix="n--2-", raw=True),
            Selection("Node"),
            Selection("Node", host="n-2"),
        ):
            found = await packed.list(selection)
            assert found.entries
            assert entries(found) == entries(await plain.list(selection))
            assert found.broken == []


@pytest.mark.asyncio
async def test_pages_go_on_where_they_ended(
    api: ApiServer, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libcalico.datastore.kubernetes.listing.PAGE", 2)
    for number in range(5):
        kdd.pod(api, f"p{number}", "n-2", space=space)
    async with both(api) as (packed, plain):
        pages = [page async for page in packed.pages(Selection("WorkloadEndpoint", space))]
        assert [len(page.entries) for page in pages] == [2, 2, 1, 0]
        assert [one.key for page in pages for one in page.entries] == [
            one.key for one in (await plain.list(Selection("WorkloadEndpoint", space))).entries
        ]


async def events(store: KubernetesDatastore, selection: Selection, at: int, last: str) -> list[Any]:
    """What a watch tells after a revision, up to the end of an object."""
    found: list[Event] = []
    async with asyncio.timeout(HANG), contextlib.aclosing(store.watch([selection], at)) as watch:  # type: ignore[type-var]
        async for batch in watch:
            found += batch
            if any(last in str(one.key) and one.entry is None for one in batch):
                break
    return [(one.key, one.revision, one.entry and one.entry.raw) for one in found]


@pytest.mark.asyncio
async def test_a_watch_says_the_same(api: ApiServer, space: str) -> None:
    selection = Selection("WorkloadEndpoint", space, live=True)
    async with both(api) as (packed, plain):
        at = (await plain.list(selection)).revision
        life = PodLife(api, space, "web-2", "n-2", "10.65.0.2")
        for _, write in life.steps():
            write()
        found = await events(packed, selection, at, "web--2")
        assert found == await events(plain, selection, at, "web--2")
        addresses = [raw is not None and b"10.65.0.2" in raw for _, _, raw in found]
        # Made: nothing. Bound, and made ready; attached until it is detached; ended.
        assert addresses == [False, False, *[True] * 7, False, False], found


@pytest.mark.asyncio
async def test_a_node_in_brief_is_the_same_node_to_bgp(api: ApiServer, space: str) -> None:
    """It loses what Kubernetes itself gave the node, and nothing of Calico's."""
    register(api, "n2")
    whole, brief = Selection("Node"), Selection("Node", brief=True)
    async with kdd.opened(api) as store:
        listed, found = await store.list(whole), await store.list(brief)
        assert [node_view(one.value) for one in found.entries] == [
            node_view(one.value) for one in listed.entries
        ]
        (own,) = (one.value for one in found.entries)
        assert node_view(own).asn == 64512
        assert (own.status.podCIDRs, len(own.spec.addresses)) == ([], 1)
        api.call(
            "PATCH",
            "/api/v1/nodes/n2",
            {"metadata": {"labels": {"rack": "7"}, "annotations": {REFLECTOR: "244.0.0.1"}}},
            content="application/merge-patch+json",
        )
        async with (
            asyncio.timeout(HANG),
            contextlib.aclosing(store.watch([brief], found.revision)) as watch,
        ):
            event = await anext(event async for batch in watch for event in batch)
        view = node_view(event.entry.value)
        assert (view.labels["rack"], view.cluster_id) == ("7", "244.0.0.1")


@pytest.mark.asyncio
async def test_history_that_is_forgotten_is_told_as_such(api: ApiServer, space: str) -> None:
    async with both(api) as stores:
        at = (await stores[0].list(Selection("WorkloadEndpoint"))).revision
        kdd.pod(api, "p", "n-2", space=space)
        api.forget_history()
        api.restart()
        for store in stores:
            with pytest.raises(Compacted, match=r"too old|compacted|expired"):
                await events(store, Selection("WorkloadEndpoint"), at, "nothing")


@pytest.mark.asyncio
async def test_a_refusal_is_named(api: ApiServer, space: str) -> None:
    client = api.client(api.account("lister", [PODS], space))
    async with kdd.opened(api, client) as store:
        await store.list(Selection("WorkloadEndpoint"))
        with pytest.raises(PermissionDenied, match=r'403 nodes is forbidden: User ".*lister"'):
            await store.list(Selection("Node"))
        with pytest.raises(PermissionDenied, match="403 pods is forbidden"):
            await events(store, Selection("WorkloadEndpoint"), 1, "nothing")
