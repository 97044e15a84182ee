"""Credentials against a real API server: a pod's account, a kubeconfig, certificates, rotation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from libcalico.apiconfig import from_environment
from libcalico.kubernetes.access import find, in_cluster
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.errors import Unauthorized
from libcalico.kubernetes.reflector import Reflector
from libcalico.kubernetes.service_objects import ENDPOINT_SLICES
from tests.apiserver.view import View
from tests.support.apiserver import ApiServer
from tests.support.certificates import Authority
from tests.support.patience import patient, until

pytestmark = pytest.mark.asyncio
READ_SLICES = [
    {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    }
]


async def who(client: Client) -> str:
    """Who the server says that we are."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = b'{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}'
    answer = msgspec.json.decode(await client.request("POST", path, body=body))
    name: str = answer["status"]["userInfo"]["username"]
    return name


async def refused(client: Client, within: float) -> bool:
    """Whether the server lets us in no more; it remembers good tokens for seconds."""
    deadline = time.monotonic() + patient(within)
    while time.monotonic() < deadline:
        try:
            await who(client)
        except Unauthorized:
            return True
        await asyncio.sleep(0.2)
    return False


def environment(api: ApiServer) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}


def forget_account(api: ApiServer, name: str) -> None:
    api.delete(f"/api/v1/namespaces/default/serviceaccounts/{name}")


async def test_a_token_that_rotates_is_taken_up(api: ApiServer, tmp_path: Path) -> None:
    api.mount_account(tmp_path, api.account("first", READ_SLICES))
    client = Client(in_cluster(environment(api), tmp_path))
    assert await who(client) == "system:serviceaccount:default:first"
    api.mount_account(tmp_path, api.account("second", READ_SLICES))
    assert await who(client) == "system:serviceaccount:default:second"
    forget_account(api, "second")
    assert await refused(client, 30)
    api.mount_account(tmp_path, api.account("first", READ_SLICES))
    assert await who(client) == "system:serviceaccount:default:first"
    await client.close()


async def test_a_watch_outlives_the_token_it_began_with(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    api.mount_account(tmp_path, api.account("brief", READ_SLICES))
    client = Client(in_cluster(environment(api), tmp_path))
    view = View()
    reflector = Reflector(client, ENDPOINT_SLICES, view, Query(space), watch_seconds=(2, 2))
    task = asyncio.create_task(reflector.run())
    try:
        await until(lambda: view.lists)
        forget_account(api, "brief")
        await until(lambda: "401" in reflector.error)
        assert not reflector.connected
        api.slice("meanwhile", "web", ["10.0.0.1"], space=space)
        await asyncio.sleep(0.5)
        assert not view.objects
        api.mount_account(tmp_path, api.account("brief", READ_SLICES))
        await until(lambda: view.names == {"meanwhile"})
        assert reflector.connected
        assert not view.faults
        # The watch went on where it was.
        assert view.lists == 1
    finally:
        task.cancel()
        await client.close()


async def test_a_client_certificate_by_kubeconfig(api: ApiServer, tmp_path: Path) -> None:
    def write(name: str) -> None:
        pair = api.authority.issue(name, names=(), usage="clientAuth")
        user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
        cluster = {"server": api.url, "certificate-authority": str(api.authority.cert)}
        tree = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(tree))

    write("alice")
    environ = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    client = Client(find(from_environment(environ), environ))
    assert await who(client) == "alice"
    write("bob")
    assert await who(client) == "bob"
    await client.close()


async def test_a_certificate_of_another_authority_is_not_known(
    api: ApiServer, tmp_path: Path
) -> None:
    pair = Authority(tmp_path, "other").issue("mallory", names=())
    access = replace(api.access(""), cert=pair.cert.read_bytes(), key=pair.key.read_bytes())
    with pytest.raises(Unauthorized):
        await Client(lambda: access).request("GET", "/api/v1/nodes")
