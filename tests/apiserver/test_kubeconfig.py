"""What a kubeconfig may say beside a token and a certificate, against a real API server:
a program that rotates its token, a proxy, several files that are merged, impersonation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from libcalico.apiconfig import from_environment
from libcalico.kubernetes.access import find
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.reflector import Reflector
from libcalico.kubernetes.service_objects import ENDPOINT_SLICES
from tests.apiserver.test_credentials import READ_SLICES, forget_account
from tests.apiserver.view import View
from tests.support.apiserver import ADMIN, ApiServer
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
VERSION = "client.authentication.k8s.io/v1"
CONTEXT = {"name": "x", "context": {"cluster": "c", "user": "u"}}


def tree(api: ApiServer, user: dict[str, Any], **cluster: str) -> dict[str, Any]:
    where = {"server": api.url, "certificate-authority": str(api.authority.cert), **cluster}
    return {
        "current-context": "x",
        "contexts": [CONTEXT],
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "u", "user": user}],
    }


def client_of(path: Path | str, content: object = None) -> Client:
    """A client as every program has it: the kubeconfig comes from the environment."""
    if content is not None:
        Path(path).write_text(yaml.safe_dump(content))
    environ = {"KUBECONFIG": str(path)}
    return Client(find(from_environment(environ), environ))


async def who(client: Client) -> dict[str, Any]:
    """Who the server says that we are."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = b'{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}'
    answer = msgspec.json.decode(await client.request("POST", path, body=body))
    found: dict[str, Any] = answer["status"]["userInfo"]
    return found


class Plugin:
    """A program that prints the credential of the moment, and counts how often it ran."""

    def __init__(self, at: Path) -> None:
        self._at = at
        script = at / "plugin"
        script.write_text(f"#!/bin/sh\necho run >>{at}/runs\ncat {at}/answer\n")
        script.chmod(0o755)
        self.user = {"exec": {"apiVersion": VERSION, "command": "./plugin"}}

    def gives(self, token: str, until: str = "") -> None:
        status = {"token": token} | ({"expirationTimestamp": until} if until else {})
        credential = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
        (self._at / "answer").write_text(json.dumps(credential))

    @property
    def runs(self) -> int:
        return (self._at / "runs").read_text().count("run")


class ConnectProxy:
    """An HTTP proxy that knows CONNECT alone. `targets`: what it was asked for."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> ConnectProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
        assert method == "CONNECT"
        self.targets.append(target)
        host, _, port = target.rpartition(":")
        behind, to_server = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for one in (_forward(reader, to_server), _forward(behind, writer)):
            task = asyncio.create_task(one)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


async def test_a_programs_token_that_is_over_or_refused_is_asked_for_anew(
    api: ApiServer, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives("unknown")
    client = client_of(tmp_path / "kubeconfig", tree(api, plugin.user))
    plugin.gives(ADMIN, until="2001-01-01T00:00:00Z")
    # The first one is refused by the server, in the middle of the request.
    assert (await who(client))["username"] == "admin"
    assert plugin.runs == 2
    plugin.gives(api.account("rotated", READ_SLICES), until="2999-01-01T00:00:00Z")
    name = "system:serviceaccount:default:rotated"
    assert [(await who(client))["username"] for _ in range(3)] == [name] * 3
    assert plugin.runs == 3
    await client.close()


async def test_a_watch_outlives_a_programs_token(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(api.account("early", READ_SLICES))
    client = client_of(tmp_path / "kubeconfig", tree(api, plugin.user))
    view, errors = View(), []
    reflector = Reflector(
        client,
        ENDPOINT_SLICES,
        view,
        Query(space),
        watch_seconds=(1, 1),
        on_status=lambda: errors.append(reflector.error),
    )
    task = asyncio.create_task(reflector.run())
    try:
        await until(lambda: view.lists)
        plugin.gives(api.account("late", READ_SLICES))
        forget_account(api, "early")
        # The server remembers good tokens for seconds; then it refuses, and the program runs.
        await until(lambda: plugin.runs == 2)
        api.slice("meanwhile", "web", ["10.0.0.1"], space=space)
        await until(lambda: view.names == {"meanwhile"})
        assert (view.lists, view.faults) == (1, [])
        assert not [error for error in errors if "401" in error]
    finally:
        task.cancel()
        await client.close()


async def test_requests_and_watches_go_through_the_proxy(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    proxy = await ConnectProxy().start()
    content = tree(api, {"token": ADMIN}, **{"proxy-url": proxy.url})
    client = client_of(tmp_path / "kubeconfig", content)
    view = View()
    task = asyncio.create_task(Reflector(client, ENDPOINT_SLICES, view, Query(space)).run())
    try:
        assert (await who(client))["username"] == "admin"
        await until(lambda: view.lists)
        api.slice("seen", "web", ["10.0.0.1"], space=space)
        await until(lambda: view.names == {"seen"})
        assert len(proxy.targets) >= 2
        assert set(proxy.targets) == {f"127.0.0.1:{api.port}"}
    finally:
        task.cancel()
        await client.close()
        await proxy.stop()
    with pytest.raises(Unreachable, match=r"the proxy 127\.0\.0\.1:\d+: no connection"):
        await who(client)


async def test_several_files_are_one_kubeconfig(api: ApiServer, tmp_path: Path) -> None:
    users, clusters = tmp_path / "users", tmp_path / "clusters"
    users.mkdir()
    clusters.mkdir()
    pair = api.authority.issue("alice", names=(), usage="clientAuth")
    (users / "a.crt").write_bytes(pair.cert.read_bytes())
    (users / "a.key").write_bytes(pair.key.read_bytes())
    (clusters / "ca.crt").write_bytes(api.ca)
    user = {"client-certificate": "a.crt", "client-key": "a.key"}
    whole = tree(api, user, **{"certificate-authority": "ca.crt"})
    for folder, names in (
        (users, ("users", "current-context")),
        (clusters, ("clusters", "contexts")),
    ):
        part = {name: whole[name] for name in names}
        (folder / "config").write_text(yaml.safe_dump(part))
    other = yaml.safe_dump({"current-context": "other", "users": [{"name": "u", "user": {}}]})
    (tmp_path / "last").write_text(other)
    named = [users / "config", tmp_path / "nowhere", clusters / "config", tmp_path / "last"]
    client = client_of(":".join(map(str, named)))
    assert (await who(client))["username"] == "alice"
    await client.close()


async def test_a_request_is_made_as_another_user(api: ApiServer, tmp_path: Path) -> None:
    user = {
        "token": ADMIN,
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.org/project": ["one", "two"]},
    }
    client = client_of(tmp_path / "kubeconfig", tree(api, user))
    found = await who(client)
    assert (found["username"], found["uid"]) == ("jane", "7")
    assert {"dev", "ops"} <= set(found["groups"])
    assert found["extra"] == {"example.org/project": ["one", "two"]}
    await client.close()
