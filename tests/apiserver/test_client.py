"""Requests to a real API server: objects, pages, errors by their names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from libcalico.kubernetes.client import STRATEGIC_PATCH, Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    ObjectNotFound,
    Unauthorized,
    Unreachable,
)
from libcalico.kubernetes.objects import NODES, SECRETS, Object, Resource
from libcalico.kubernetes.service_objects import SERVICES
from tests.support.apiserver import ApiServer

MAPS = Resource("v1", "configmaps", Object)


@pytest.mark.asyncio
async def test_an_object_is_made_read_changed_and_deleted(api: ApiServer, space: str) -> None:
    client = api.client()
    made = await client.create(
        SECRETS, {"metadata": {"name": "s"}, "stringData": {"word": "hi"}}, space
    )
    assert (await client.get(SECRETS, "s", space)).data == {"word": b"hi"}
    with pytest.raises(Conflict, match="already exists"):
        await client.create(SECRETS, {"metadata": {"name": "s"}}, space)
    changed = await client.patch(SECRETS, "s", {"stringData": {"more": "x"}}, space)
    assert changed.data == {"word": b"hi", "more": b"x"}
    stale = {"metadata": {"name": "s", "resourceVersion": made.metadata.resourceVersion}}
    with pytest.raises(Conflict, match="modified"):
        await client.replace(SECRETS, "s", stale, space)
    await client.replace(SECRETS, "s", {"metadata": {"name": "s"}}, space)
    assert not (await client.get(SECRETS, "s", space)).data
    await client.delete(SECRETS, "s", space)
    with pytest.raises(ObjectNotFound, match=r'GET .*/secrets/s: 404 secrets "s" not found'):
        await client.get(SECRETS, "s", space)
    await client.close()


@pytest.mark.asyncio
async def test_what_is_wrong_with_an_object_is_told_as_the_server_says_it(
    api: ApiServer, space: str
) -> None:
    with pytest.raises(ApiError, match=r"422 .*RFC 1123") as caught:
        await api.client().create(SECRETS, {"metadata": {"name": "S!"}}, space)
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")


@pytest.mark.asyncio
async def test_a_node_and_its_internal_addresses(api: ApiServer) -> None:
    client = api.client()
    await client.create(NODES, {"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.1.0.0/24"]}})
    addresses = [
        {"type": "Hostname", "address": "n1"},
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "InternalIP", "address": "2001:db8::1"},
    ]
    status = {"status": {"addresses": addresses}}
    node = await client.patch(NODES, "n1", status, part="status", content=STRATEGIC_PATCH)
    assert node.addresses() == ["192.0.2.1", "2001:db8::1"]
    found = await client.page(NODES, Query(fields="metadata.name=n1"))
    assert [one.addresses("Hostname") for one in found.items] == [["n1"]]
    await client.delete(NODES, "n1")
    await client.close()


@pytest.mark.asyncio
async def test_a_service_as_advertisement_needs_it(api: ApiServer, space: str) -> None:
    client = api.client()
    spec = {
        "type": "LoadBalancer",
        "ports": [{"port": 80}],
        "externalIPs": ["192.0.2.80"],
        "externalTrafficPolicy": "Local",
    }
    await client.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, space)
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.90"}]}}}
    web = await client.patch(SERVICES, "web", status, space, part="status")
    assert web.spec.clusterIPs
    assert web.spec.clusterIPs[0].startswith("10.96.")
    assert (web.spec.externalIPs, web.spec.externalTrafficPolicy) == (["192.0.2.80"], "Local")
    assert [one.ip for one in web.status.loadBalancer.ingress or ()] == ["192.0.2.90"]
    await client.close()


@pytest.mark.asyncio
async def test_a_list_comes_in_pages_packed_or_not(api: ApiServer, space: str) -> None:
    client = api.client()
    for number in range(7):
        # Above 128 KiB the server packs its answers.
        body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * 100_000}}
        api.call("POST", f"/api/v1/namespaces/{space}/configmaps", body)
    query = Query(space)
    names: list[str] = []
    revisions = set()
    token = ""
    for _ in range(3):
        page = await client.page(MAPS, query, limit=3, token=token)
        names += [one.metadata.name for one in page.items]
        revisions.add(page.revision)
        token = page.token
    assert names == [f"m{number}" for number in range(7)]
    assert not token
    assert len(revisions) == 1
    assert len((await client.page(MAPS, query, limit=0)).items) == 7
    await client.close()


@pytest.mark.asyncio
async def test_pages_of_a_history_that_is_forgotten_are_gone(api: ApiServer, space: str) -> None:
    client = api.client()
    for number in range(3):
        api.ensure(f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": f"m{number}"}})
    page = await client.page(MAPS, Query(space), limit=1)
    api.ensure(f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": "later"}})
    api.forget_history()
    api.restart()
    with pytest.raises(Gone):
        await client.page(MAPS, Query(space), limit=1, token=page.token)
    await client.close()


@pytest.mark.asyncio
async def test_who_may_not_is_told_so(api: ApiServer, space: str) -> None:
    reader = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    client = api.client(api.account("reader", reader))
    with pytest.raises(ObjectNotFound):
        await client.get(SECRETS, "none", space)
    with pytest.raises(Forbidden, match=r"default:reader.* cannot list .*does RBAC allow it"):
        await client.page(SECRETS, Query(space))
    with pytest.raises(Forbidden):
        await anext(client.watch(SECRETS, "1", Query(space)))
    with pytest.raises(Unauthorized, match="401 Unauthorized; is the token"):
        await api.client("no-such-token").get(SECRETS, "none", space)
    await client.close()


@pytest.mark.asyncio
async def test_a_server_that_is_away_or_silent(api: ApiServer) -> None:
    client: Client = api.client()
    await client.page(NODES)
    client._timeout = 0.5
    api.pause()
    with pytest.raises(Unreachable, match=r"GET /api/v1/nodes: no answer within 0.5 s"):
        await client.page(NODES)
    api.resume()
    api.kill()
    with pytest.raises(Unreachable, match="Connection refused"):
        await client.page(NODES)
    await client.close()


def test_an_agent_does_not_pay_for_a_big_client() -> None:
    code = (
        "import sys; import libcalico.kubernetes.reflector, libcalico.kubernetes.access\n"
        "print(sorted({'kubernetes','aiohttp','requests','urllib3','httpx'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
