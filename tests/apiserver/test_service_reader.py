"""The reader of services alone: who wants it, when it lets go, what it makes of slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from felix.calc.services import ServicePort, ServiceSlice, SliceKey
from felix.service_reader import ServiceReader
from tests.apiserver.view import until
from tests.support.apiserver import ApiServer


class Told:
    """A calculation that only remembers."""

    def __init__(self) -> None:
        self.slices: dict[SliceKey, ServiceSlice] = {}
        self.known: list[bool] = []
        self.calls = 0

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        self.calls += 1
        self.slices.pop(key, None)
        if value is not None:
            self.slices[key] = value
        return True

    def services_known(self, known: bool) -> bool:
        self.known.append(known)
        return True


@asynccontextmanager
async def reading(
    api: ApiServer, folder: Path, told: Told, linger: float = 0.5
) -> AsyncIterator[ServiceReader]:
    (folder / "kubeconfig").write_text(
        '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c",'
        ' "user": "u"}}], "users": [{"name": "u", "user": {"token": "admin-token"}}],'
        f' "clusters": [{{"name": "c", "cluster": {{"server": "{api.url}",'
        f' "certificate-authority": "{api.authority.cert}"}}}}]}}'
    )
    environ = {"KUBECONFIG": str(folder / "kubeconfig"), "ETCD_ENDPOINTS": "http://127.0.0.1:1"}
    reader = ServiceReader(told, environ, lambda: None, linger=linger)
    task = asyncio.create_task(reader.run())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


@pytest.mark.asyncio
async def test_it_reads_while_it_is_wanted_and_forgets_some_time_later(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    told = Told()
    api.slice("web-1", "web", ["10.0.0.1"], [80], space=space)
    key = SliceKey(space, "web-1")
    async with reading(api, tmp_path, told) as reader:
        await asyncio.sleep(0.3)
        assert not told.known
        reader.want(True)
        await reader.first()
        assert told.known == [True]
        assert told.slices[key].addresses == {ip_address("10.0.0.1")}
        # Wanted again in time: nothing happens.
        reader.want(False)
        await asyncio.sleep(0.1)
        reader.want(True)
        await asyncio.sleep(0.8)
        assert told.known == [True]
        reader.want(False)
        await until(lambda: told.known == [True, False])
        assert not told.slices
        # And once more: what happened meanwhile is known.
        api.slice("web-1", "web", ["10.0.0.2"], [80], space=space)
        reader.want(True)
        await reader.first()
        assert told.known == [True, False, True]
        assert told.slices[key].addresses == {ip_address("10.0.0.2")}


@pytest.mark.asyncio
async def test_what_of_a_slice_counts(api: ApiServer, space: str, tmp_path: Path) -> None:
    told = Told()
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices"
    label = {"kubernetes.io/service-name": "web"}
    ports = [{"name": "a", "port": 53, "protocol": "UDP"}, {"name": "b", "protocol": "TCP"}]
    for name, labels, kind, address in (
        ("four", label, "IPv4", "10.0.0.1"),
        ("six", label, "IPv6", "2001:db8::1"),
        ("name", label, "FQDN", "web.example"),
        ("nobodys", {}, "IPv4", "10.0.0.9"),
    ):
        body = {
            "metadata": {"name": name, "labels": labels},
            "addressType": kind,
            "endpoints": [{"addresses": [address], "conditions": {"ready": False}}],
            "ports": ports,
        }
        api.ensure(slices, body)
    api.ensure(slices, {"metadata": {"name": "empty", "labels": label}, "addressType": "IPv4",
                        "endpoints": [], "ports": None})  # fmt: skip
    async with reading(api, tmp_path, told) as reader:
        reader.want(True)
        await reader.first()
        mine = {key.name: value for key, value in told.slices.items() if key.namespace == space}
        only = frozenset({ServicePort("udp", 53)})
        assert mine == {
            "four": ServiceSlice("web", frozenset({ip_address("10.0.0.1")}), only),
            "six": ServiceSlice("web", frozenset({ip_address("2001:db8::1")}), only),
            "name": ServiceSlice("web", frozenset(), only),
            "empty": ServiceSlice("web", frozenset()),
        }
        # What does not count is not told: readiness, an annotation.
        before = told.calls
        noted = {"name": "four", "annotations": {"a": "b"}}
        for more in (noted, {"name": "nobodys", "labels": label}):
            api.ensure(slices, {"metadata": more, "addressType": "IPv4"})
        await until(lambda: SliceKey(space, "nobodys") in told.slices)
        assert told.calls == before + 1
