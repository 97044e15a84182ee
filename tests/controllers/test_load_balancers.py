"""Addresses of services, with a real API and a real etcd (LBS-1 to LBS-3)."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from controllers.addresses import load_balancers
from controllers.addresses.load_balancers import LoadBalancers
from controllers.mirror.objects import SERVICES, Service, ServiceSpec
from ipam.allocator.hosts import release_pool_affinities
from ipam.allocator.library_assign import AssignRequest, auto_assign
from ipam.allocator.release import release_by_handle
from ipam.records import blocks
from libcalico.datastore.interface import Datastore, Selection
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import of_status
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Meta
from tests.controllers.running import running
from tests.ipam.world import put_node, put_pool
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

PATH = "/api/v1/namespaces/lb/services"
HANDLES = "/calico/ipam/v2/handle/"


def service(
    cluster: ApiServer, name: str, notes: dict[str, Any] | None = None, **spec: Any
) -> None:
    body = {
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
    }
    cluster.ensure(PATH, body)


def change(cluster: ApiServer, name: str, body: dict[str, Any]) -> None:
    cluster.call("PATCH", f"{PATH}/{name}", body, content="application/merge-patch+json")


def told(cluster: ApiServer, name: str) -> list[str]:
    status = cluster.call("GET", f"{PATH}/{name}")["status"]["loadBalancer"]
    return [one["ip"] for one in status.get("ingress") or ()]


@pytest.mark.asyncio
@pytest.mark.promise("F-94")
async def test_a_service_gets_an_address_keeps_it_and_gives_it_back(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        service(cluster, "web")
        service(cluster, "theirs", loadBalancerClass="example.com/other")
        client = cluster.client()
        part = LoadBalancers(client, store)
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
            (address,) = told(cluster, "web")
            assert address.startswith("10.9.0.")
            assert told(cluster, "theirs") == [], "LBS-3"
            assert stored.keys("/calico/ipam/v2/virtual/load-balancer/")
            # Asked for by name.
            service(cluster, "named", {"projectcalico.org/loadBalancerIPs": '["10.9.0.77"]'})
            await until(lambda: told(cluster, "named") == ["10.9.0.77"])
            await until(lambda: part.in_sync)
        before = stored.keys(HANDLES)
        assert len(before) == 2
        again = LoadBalancers(client, store)
        async with running(again):
            await until(lambda: again.in_sync)
            assert (again.writes, told(cluster, "web")) == (0, [address]), "LBS-1"
            cluster.delete(f"{PATH}/named")
            await until(lambda: len(stored.keys(HANDLES)) == 1)
        # Gone, and another of its name, while nobody watched.
        cluster.delete(f"{PATH}/web")
        service(cluster, "web")
        third = LoadBalancers(client, store)
        async with running(third):
            await until(lambda: third.in_sync and told(cluster, "web"))
            await until(lambda: len(stored.keys(HANDLES)) == 1 and stored.keys(HANDLES) != before)
        cluster.delete(f"{PATH}/web")
        last = LoadBalancers(client, store)
        async with running(last):
            await until(lambda: last.in_sync and not stored.keys(HANDLES))
        await client.close()
    cluster.delete(f"{PATH}/theirs")


class Seen(LoadBalancers):
    """`told`: the services that the API told of, in order."""

    def __init__(self, client: Client, store: Datastore) -> None:
        super().__init__(client, store)
        self.told: list[str] = []

    def put(self, name: Name, value: Service) -> None:
        super().put(name, value)
        self.told.append(value.metadata.uid)


@pytest.mark.asyncio
async def test_a_service_that_returns_while_its_addresses_go_gets_others(
    cluster: ApiServer, stored: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        client = cluster.client()
        part = Seen(client, store)

        async def interrupted(store: Datastore, handle: str) -> None:
            monkeypatch.undo()
            before = len(part.told)
            service(cluster, "web")
            await until(lambda: len(part.told) > before)
            await release_by_handle(store, handle)

        service(cluster, "web")
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
            before = stored.keys(HANDLES)
            monkeypatch.setattr(load_balancers, "release_by_handle", interrupted)
            cluster.delete(f"{PATH}/web")
            await until(lambda: len(stored.keys(HANDLES)) == 1 and stored.keys(HANDLES) != before)
            await until(lambda: part.in_sync and told(cluster, "web"))
        await client.close()
    cluster.delete(f"{PATH}/web")


@pytest.mark.asyncio
async def test_a_service_that_comes_and_goes_while_its_addresses_go_ends_nothing(
    cluster: ApiServer, stored: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is queued once more, and nothing is known of it any more."""
    name = Name("lb", "web")
    metadata = Meta(name="web", namespace="lb", uid="u")
    value = Service(metadata=metadata, spec=ServiceSpec(type="LoadBalancer"))
    async with stored.connect() as store:
        part = LoadBalancers(cluster.client(), store)

        async def interrupted(handle: str) -> None:
            part.put(name, value)
            part.gone(name)

        part.put(name, value)
        part.gone(name)
        monkeypatch.setattr(part, "_release", interrupted)
        assert await part._settle(name)
        assert await part._settle(name)


@pytest.mark.asyncio
async def test_without_a_pool_it_waits_and_a_service_that_changes_gives_back(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("lb")
    async with stored.connect() as store:
        service(cluster, "early")
        client = cluster.client()
        part = LoadBalancers(client, store, period=1.0)
        async with running(part):
            await until(lambda: part.in_sync)
            assert told(cluster, "early") == []
            await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
            await until(lambda: told(cluster, "early"))
            change(cluster, "early", {"spec": {"type": "ClusterIP"}})
            await until(lambda: not stored.keys(HANDLES))
        await client.close()
    cluster.delete(f"{PATH}/early")


@pytest.mark.asyncio
async def test_what_cannot_be_read_keeps_no_address_from_a_service(
    cluster: ApiServer, stored: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool without a CIDR; then values of a handle and of a block that no code foresaw."""
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "bad", "10.9.0.0/99", 28, allowedUses=["LoadBalancer"])
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        client = cluster.client()
        part = LoadBalancers(client, store)
        stumbled: list[str] = []

        async def stumble(*_: object) -> None:
            stumbled.append("")
            monkeypatch.undo()
            raise ValueError("'10.9.0.0/99' is no network")

        monkeypatch.setattr(part, "_service", stumble)
        service(cluster, "web")
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
            assert (len(stumbled), part.failures) == (1, 1)
        again = LoadBalancers(client, store, period=0.05)
        monkeypatch.setattr(again, "_sweep", stumble)
        async with running(again):
            await until(lambda: again.swept)
        await client.close()
    cluster.delete(f"{PATH}/web")


@pytest.mark.asyncio
async def test_a_service_of_another_type_by_now_gives_back_what_it_held(
    cluster: ApiServer, stored: Etcd
) -> None:
    """LBS-2: no controller ran when its type was changed."""
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        client = cluster.client()
        service(cluster, "web")
        part = LoadBalancers(client, store)
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
        change(cluster, "web", {"spec": {"type": "ClusterIP"}})
        again = LoadBalancers(client, store)
        async with running(again):
            await until(lambda: again.in_sync)
            assert not stored.keys(HANDLES)
        await client.close()
    cluster.delete(f"{PATH}/web")


@pytest.mark.asyncio
@pytest.mark.parametrize("owner", ["", "n1"])
async def test_addresses_of_gone_services_come_back_whoever_owns_their_block(
    cluster: ApiServer, stored: Etcd, owner: str
) -> None:
    """LBS-2: the claims of the pool were released, or the block is a node's."""
    cluster.namespace("lb")
    cidr, uses = "10.9.0.0/28", ["LoadBalancer", "Workload"]
    async with stored.connect() as store:
        await put_pool(store, "services", cidr, 28, allowedUses=uses)
        if owner:
            await put_node(store, owner)
            await auto_assign(store, AssignRequest(owner, "pod", {"node": owner}, num4=1))
        client = cluster.client()
        service(cluster, "web", {"projectcalico.org/loadBalancerIPs": '["10.9.0.9"]'})
        part = LoadBalancers(client, store)
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
        await put_pool(store, "services", cidr, 28, allowedUses=uses, disabled=True)
        if not owner:
            await release_pool_affinities(store, ip_network(cidr))
        cluster.delete(f"{PATH}/web")
        again = LoadBalancers(client, store)
        async with running(again):
            await until(lambda: again.in_sync)
            assert stored.keys(HANDLES) == ([f"{HANDLES}pod"] if owner else [])
        await client.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("notes", [{"projectcalico.org/loadBalancerIPs": '["10.9.0.77"]'}, {}])
async def test_an_address_is_told_although_the_other_family_has_no_pool(
    cluster: ApiServer, stored: Etcd, notes: dict[str, str]
) -> None:
    cluster.namespace("lb")
    value = Service(
        metadata=Meta(name="web", namespace="lb", uid="u", annotations=notes),
        spec=ServiceSpec(type="LoadBalancer", ipFamilies=["IPv4", "IPv6"]),
    )
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        service(cluster, "web", notes)
        client = cluster.client()
        for _ in range(2):  # the second finds the address taken, and not told
            part = LoadBalancers(client, store)
            part.put(Name("lb", "web"), value)
            empty: dict[str, Any] = {"status": {"loadBalancer": {"ingress": []}}}
            await client.patch(SERVICES, "web", empty, "lb", part="status")
            assert not await part._settle(Name("lb", "web")), "an IPv6 address is missing"
            (address,) = told(cluster, "web")
            assert address == "10.9.0.77" or not notes
        await client.close()
    cluster.delete(f"{PATH}/web")


@pytest.mark.asyncio
async def test_the_status_of_another_service_of_the_same_name_is_not_touched(
    cluster: ApiServer, stored: Etcd
) -> None:
    """LBS-3: it was made anew, for another implementation, before the watch told of it."""
    cluster.namespace("lb")
    name = Name("lb", "web")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        service(cluster, "web")
        client = cluster.client()
        part = LoadBalancers(client, store)
        part.put(name, await client.get(SERVICES, "web", "lb"))
        cluster.delete(f"{PATH}/web")
        service(cluster, "web", loadBalancerClass="example.com/other")
        assert not await part._settle(name), "it is asked for once more"
        assert await part._settle(name)
        assert told(cluster, "web") == []
        assert stored.keys(HANDLES) == [], "LBS-2"
        await client.close()
    cluster.delete(f"{PATH}/web")


@pytest.mark.asyncio
async def test_a_service_whose_handle_was_deleted_keeps_and_gives_back_its_address(
    cluster: ApiServer, stored: Etcd
) -> None:
    """LBS-1, LBS-2."""
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        client = cluster.client()
        service(cluster, "web")
        part = LoadBalancers(client, store)
        async with running(part):
            await until(lambda: part.in_sync and told(cluster, "web"))
        before, (handle,) = told(cluster, "web"), stored.keys(HANDLES)
        stored.delete(handle)
        again = LoadBalancers(client, store)
        async with running(again):
            await until(lambda: stored.keys(HANDLES) == [handle])
            await until(lambda: again.in_sync)
            assert told(cluster, "web") == before
        stored.delete(handle)
        cluster.delete(f"{PATH}/web")
        last = LoadBalancers(client, store)
        async with running(last):
            await until(lambda: last.in_sync)
            assert stored.keys(HANDLES) == []
            listing = await store.list(Selection("Block"))
            assert [one for e in listing.entries for one in blocks.allocations(e.value)] == []
        await client.close()


class Failing(Client):
    """The next `failures` changes are answered with 500."""

    failures = 0

    async def request(self, method: str, path: str, *more: Any, **also: Any) -> bytes:
        if method == "PATCH" and self.failures:
            self.failures -= 1
            raise of_status(f"PATCH {path}", 500, b"{}", 0.0)
        return await super().request(method, path, *more, **also)


@pytest.mark.asyncio
async def test_a_service_shows_no_address_that_it_lost_while_the_api_failed(
    cluster: ApiServer, stored: Etcd
) -> None:
    note = "projectcalico.org/loadBalancerIPs"
    cluster.namespace("lb")
    async with stored.connect() as store:
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        client = Failing(cluster.client().source)
        part = LoadBalancers(client, store, assign="RequestedServicesOnly")
        async with running(part):
            service(cluster, "web", {note: '["10.9.0.77"]'})
            await until(lambda: part.in_sync and told(cluster, "web") == ["10.9.0.77"])
            client.failures = 1
            change(cluster, "web", {"metadata": {"annotations": {note: None}}})
            await until(lambda: not stored.keys(HANDLES))
            await until(lambda: part.in_sync)
            assert (client.failures, told(cluster, "web")) == (0, [])
        await client.close()
    cluster.delete(f"{PATH}/web")
