"""Where the datastore is, as it is configured."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.hosts import addresses, hosts

pytestmark = pytest.mark.asyncio


def etcd(endpoints: str) -> tuple[str, ...]:
    return hosts(DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoints), {})


async def test_hosts_are_those_of_the_endpoints() -> None:
    assert etcd("http://10.0.0.1:2379,https://[fd00::1]:2379, https://etcd.example") == (
        "10.0.0.1",
        "fd00::1",
        "etcd.example",
    )
    assert etcd("http://10.0.0.1:2379,http://10.0.0.1:2479") == ("10.0.0.1",)
    both = DatastoreConfig(
        datastore_type="etcdv3",
        etcd_endpoints="http://10.0.0.1:2379",
        read_endpoints="http://10.0.0.7:2379",
    )
    assert hosts(both, {}) == ("10.0.0.1", "10.0.0.7")
    api = DatastoreConfig(datastore_type="kubernetes", k8s_api_endpoint="https://10.0.0.9:6443")
    assert hosts(api, {}) == ("10.0.0.9",)
    assert hosts(DatastoreConfig(datastore_type="kubernetes"), {}) == ()


async def test_addresses_are_said_once_and_names_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    literal = [found async for found in addresses(["10.0.0.1", "fd00::1"])]
    assert literal == [{ip_address("10.0.0.1"), ip_address("fd00::1")}]
    assert [found async for found in addresses([])] == [frozenset()]
    known: dict[str, str] = {}

    async def lookup(name: str, _port: None) -> list[Any]:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(socket.AF_INET, 0, 0, "", (known[name], 0))]

    pauses: list[float] = []

    async def pass_time(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    monkeypatch.setattr(asyncio, "sleep", pass_time)
    told = addresses(["10.0.0.1", "etcd.example"])
    assert await anext(told) == {ip_address("10.0.0.1")}
    known["etcd.example"] = "10.0.0.2"
    assert await anext(told) == {ip_address("10.0.0.1"), ip_address("10.0.0.2")}
    known["etcd.example"] = "10.0.0.3"
    assert await anext(told) == {ip_address("10.0.0.1"), ip_address("10.0.0.3")}
    assert pauses == [30.0, 600.0]
    await told.aclose()  # type: ignore[attr-defined]
