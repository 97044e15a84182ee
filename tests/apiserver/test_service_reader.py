"""The reader of services alone: who wants it, when it lets go, what it makes of slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from felix.calc.services import ServicePort, ServiceSlice, SliceKey
from felix.store import service_reader
from felix.store.service_reader import ServiceReader
from libcalico.kubernetes import objects, service_objects
from libcalico.kubernetes.reflector import Reflector
from libcalico.process.backoff import Backoff
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG, until


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers late is not what this file is about."""
    monkeypatch.setattr(service_reader, "FIRST", HANG)


class Told:
    """A calculation that only remembers."""

    def __init__(self) -> None:
        self.slices: dict[SliceKey, ServiceSlice] = {}
        self.known: list[bool] = []
        self.calls: list[SliceKey] = []

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        self.calls.append(key)
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
    reader = ServiceReader(told, environ, lambda: None, linger=linger, backoff=Backoff(0.1, 0.2))
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
    async with reading(api, tmp_path, told, linger=HANG) as reader:
        await asyncio.sleep(0.3)
        assert not told.known
        reader.want(True)
        await reader.first()
        assert told.known == [True]
        assert told.slices[key].addresses == {ip_address("10.0.0.1")}
        # Wanted again in time: nothing happens.
        reader.want(False)
        for _ in range(5):
            await asyncio.sleep(0)  # it notices
        reader._linger = 0.5  # a reader that would still let go does it soon
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
        told.calls.clear()
        noted = {"name": "four", "annotations": {"a": "b"}}
        for more in (noted, {"name": "nobodys", "labels": label}):
            api.ensure(slices, {"metadata": more, "addressType": "IPv4"})
        await until(lambda: SliceKey(space, "nobodys") in told.slices)
        # The server may still write the slice of its own service.
        assert [key.name for key in told.calls if key.namespace == space] == ["nobodys"]


Low: Any = msgspec.defstruct(
    "Low",
    [("port", Annotated[int, msgspec.Meta(le=1000)] | None, None)],
    bases=(service_objects.EndpointPort,),
    kw_only=True,
)
LowSlice = msgspec.defstruct(
    "LowSlice",
    [("ports", list[Low] | None, None)],
    bases=(service_objects.EndpointSlice,),
    kw_only=True,
)
"""What reads slices with ports up to 1000 only: to it the others are what cannot be decoded."""


@pytest.mark.asyncio
async def test_an_unreadable_slice_keeps_its_members_or_closes_what_relies_on_it(
    api: ApiServer, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low: Any = objects.Resource("discovery.k8s.io/v1", "endpointslices", LowSlice)
    monkeypatch.setattr(service_objects, "ENDPOINT_SLICES", low)
    told = Told()
    api.slice("web-1", "web", ["10.0.0.1"], [80], space=space)
    key = SliceKey(space, "web-1")
    async with reading(api, tmp_path, told) as reader:
        reader.want(True)
        await reader.first()
        api.slice("web-1", "web", ["10.0.0.2"], [8080], space=space)
        await until(reader.conditions)
        assert told.slices[key].addresses == {ip_address("10.0.0.1")}
        assert told.known == [True]
        ((what, why),) = reader.conditions()
        assert what == f"EndpointSlice({space}/web-1)"
        assert "its last readable version stays" in why
        # One that never could be read may hold any address.
        api.slice("web-2", "web", ["10.0.0.3"], [8080], space=space)
        await until(lambda: told.known == [True, False])
        assert (
            "such rules stay closed" in dict(reader.conditions())[f"EndpointSlice({space}/web-2)"]
        )
        api.slice("web-2", "web", ["10.0.0.3"], [81], space=space)
        await until(lambda: told.known == [True, False, True])
        assert SliceKey(space, "web-2") in told.slices
        assert len(reader.conditions()) == 1
        api.slice("web-1", "web", ["10.0.0.2"], [82], space=space)
        await until(lambda: not reader.conditions())
        assert told.slices[key].addresses == {ip_address("10.0.0.2")}


@pytest.mark.asyncio
async def test_a_reader_that_fails_is_begun_again_and_what_was_known_stays(
    api: ApiServer, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    for name in ("web-1", "web-2"):
        api.slice(name, "web", ["10.0.0.1"], [80], space=space)
    fails = asyncio.Event()
    follow, runs = Reflector.run, 0

    async def run(self: Reflector[Any]) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            following = asyncio.create_task(follow(self))
            await fails.wait()
            following.cancel()
        if runs <= 3:
            raise OSError("no descriptor is left")
        await follow(self)

    monkeypatch.setattr(Reflector, "run", run)
    async with reading(api, tmp_path, told) as reader:
        reader.want(True)
        await reader.first()
        before = set(told.slices)
        fails.set()
        await until(reader.conditions)
        assert "no descriptor is left" in str(reader.conditions())
        assert (set(told.slices), told.known) == (before, [True])
        api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices/web-1")
        await until(lambda: not reader.conditions())
        assert runs == 4
        assert (before - set(told.slices), told.known) == ({SliceKey(space, "web-1")}, [True])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left behind"
