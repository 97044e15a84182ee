"""Services and passwords for `bgp` from a real API server: first, changed, gone."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from bgp.cluster.kubernetes import KubernetesServices
from bgp.cluster.services import Endpoint, ServiceKey, ServiceView
from bgp.peering.kubernetes_passwords import KubernetesPasswords
from bgp.peering.passwords import Passwords, SecretRef
from tests.support.apiserver import ApiServer
from tests.support.patience import patient

pytestmark = pytest.mark.asyncio
SPACE = "bgpsources"


def environment(api: ApiServer, folder: Path) -> dict[str, str]:
    (folder / "kubeconfig").write_text(
        '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c",'
        ' "user": "u"}}], "users": [{"name": "u", "user": {"token": "admin-token"}}],'
        f' "clusters": [{{"name": "c", "cluster": {{"server": "{api.url}",'
        f' "certificate-authority": "{api.authority.cert}"}}}}]}}'
    )
    return {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "ETCD_ENDPOINTS": "http://127.0.0.1:1",
        "NAMESPACE": SPACE,
    }


@pytest.mark.promise("F-41")
async def test_a_secret_appears_changes_and_goes(api: ApiServer, tmp_path: Path) -> None:
    api.namespace(SPACE)
    path, ref = f"/api/v1/namespaces/{SPACE}/secrets", SecretRef("tor", "key")
    source = KubernetesPasswords(environment(api, tmp_path))
    source.require(frozenset({ref}))
    changes = source.changes()

    async def until(wanted: str) -> Passwords:
        async with asyncio.timeout(patient(30)):
            async for known in changes:
                if wanted in (known.values.get(ref), known.problems.get(ref)):
                    return known
        raise AssertionError(wanted)

    await until(f"there is no such Secret in namespace {SPACE}")
    for value in ("first-canary", "second-canary"):
        data = {"key": base64.b64encode(value.encode()).decode()}
        api.ensure(path, {"metadata": {"name": "tor"}, "data": data})
        assert "canary" not in repr(await until(value))
    api.delete(f"{path}/tor")
    await until(f"there is no such Secret in namespace {SPACE}")
    await changes.aclose()  # type: ignore[attr-defined]


@pytest.mark.promise("F-46")
async def test_services_with_their_endpoints(api: ApiServer, tmp_path: Path) -> None:
    api.namespace(SPACE)
    source = KubernetesServices(environment(api, tmp_path))
    source.require()
    batches = source.batches()
    table: dict[ServiceKey, ServiceView | None] = {}
    key = (SPACE, "web")

    async def until(endpoints: set[Endpoint] | None) -> None:
        async with asyncio.timeout(patient(30)):
            async for batch in batches:
                table.update(batch.changes)
                view = table.get(key)
                now = None if view is None else set(view.endpoints)
                if batch.in_sync and now == endpoints:
                    return

    await until(None)
    path = f"/api/v1/namespaces/{SPACE}/services"
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}
    api.ensure(path, {"metadata": {"name": "web"}, "spec": spec})
    await until(set())
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices"
    api.ensure(
        slices,
        {
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.65.1.1"], "nodeName": "n1"}],
            "ports": [{"port": 80}],
        },
    )
    await until({Endpoint("n1", 4)})
    view = table[key]
    assert view is not None
    assert view.local
    assert len(view.cluster_ips) == 1
    api.delete(f"{path}/web")
    await until(None)
    await batches.aclose()  # type: ignore[attr-defined]
