"""Addresses that change while a node runs, with a real kernel and a real etcd."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.errors import MuslinError
from node.settings.environment import settings
from node.start import addresses, node_object
from node.start.redetect import Watcher
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import until

NODES = "/calico/resources/v3/projectcalico.org/nodes/"
CONFIRM = 0.3


@pytest.fixture(scope="module")
def machine() -> Iterator[Namespace]:
    with network_namespace("redetect") as space, space.entered():
        for name in ("docker0", "eth0", "eth1"):
            space.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
            space.run("ip", "link", "set", name, "up")
        space.run("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        yield space


@pytest.fixture(scope="module")
def _etcd(machine: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture
def etcd(_etcd: Etcd, machine: Namespace) -> Etcd:
    """Empty, and eth0 alone has an address."""
    _etcd.delete("/calico/")
    machine.run("ip", "address", "flush", "dev", "eth0")
    machine.run("ip", "address", "flush", "dev", "eth1")
    machine.run("ip", "address", "add", "10.99.1.1/24", "dev", "eth0")
    return _etcd


def stored(etcd: Etcd, node: str = "node1") -> str:
    raw = etcd.get(NODES + node)
    assert raw
    found: str = json.loads(raw)["spec"]["bgp"]["ipv4Address"]
    return found


class Watched(Watcher):
    """A watcher, and what it called when an address was gone."""

    gone: list[str]


@asynccontextmanager
async def watching(etcd: Etcd, **more: str) -> AsyncIterator[Watched]:
    """A registered node and its watcher."""
    environ = {**etcd.environment(), "NODENAME": "node1", "IP": "autodetect", **more}
    chosen = settings(environ)
    config = apiconfig.from_environment(environ)
    store = await connect(config)
    await node_object.register(store, "node1", chosen, await addresses.look())
    await store.close()
    gone: list[str] = []
    watcher = Watched(
        lambda: connect(config), "node1", chosen, None, lambda: gone.append(""), CONFIRM
    )
    watcher.gone = gone
    task = asyncio.create_task(watcher.run())
    await until(lambda: watcher.looked)
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_a_renumbered_interface_is_stored_when_the_kernel_agrees_twice(
    etcd: Etcd, machine: Namespace
) -> None:
    async with watching(etcd) as watcher:
        revision = etcd.revision()
        machine.run("ip", "address", "add", "10.99.7.9/22", "dev", "eth0")
        await until(lambda: watcher.looked >= 2)
        assert etcd.revision() == revision, "the first one is still here"
        began = asyncio.get_running_loop().time()
        machine.run("ip", "address", "delete", "10.99.1.1/24", "dev", "eth0")
        await until(lambda: stored(etcd) == "10.99.7.9/22")
        assert asyncio.get_running_loop().time() - began >= CONFIRM
        await until(lambda: watcher.changed == 1)
        assert len(watcher.gone) == 1, "the agents' connections went with the old one"


@pytest.mark.asyncio
async def test_a_node_that_another_machine_has_taken_over_is_not_taken_back(
    etcd: Etcd, machine: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """NODE-3: it was away, and its name lives elsewhere now."""

    async def refused(_store: Any) -> None:
        raise MuslinError("another machine lives under this name")

    async with watching(etcd) as watcher:
        watcher._own_name = refused
        node = json.loads(etcd.get(NODES + "node1") or b"")
        node["spec"]["bgp"]["ipv4Address"] = "10.99.1.77/24"
        etcd.put(NODES + "node1", json.dumps(node))
        machine.run("ip", "address", "add", "10.99.7.9/22", "dev", "eth0")
        await until(lambda: "stay: another machine lives" in caplog.text)
        assert (stored(etcd), watcher.changed) == ("10.99.1.77/24", 0)


@pytest.mark.asyncio
async def test_a_change_that_does_not_last_is_not_stored(
    etcd: Etcd,
    machine: Namespace,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    async with watching(etcd) as watcher:
        revision = etcd.revision()
        look, restored = watcher._moved, asyncio.Event()

        async def moved(stored: Any) -> Any:
            if "now it would be 10.99.1.1/25" in caplog.text:  # the second look
                await restored.wait()
            return await look(stored)

        monkeypatch.setattr(watcher, "_moved", moved)
        machine.run("ip", "address", "replace", "10.99.1.1/25", "dev", "eth0")
        machine.run("ip", "address", "delete", "10.99.1.1/24", "dev", "eth0")
        await until(lambda: "now it would be 10.99.1.1/25" in caplog.text)
        machine.run("ip", "address", "add", "10.99.1.1/24", "dev", "eth0")
        machine.run("ip", "address", "delete", "10.99.1.1/25", "dev", "eth0")
        restored.set()
        await until(lambda: "changed again" in caplog.text)
        await until(lambda: watcher.looked >= 3)
        assert (etcd.revision(), watcher.changed) == (revision, 0)


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-10")
async def test_without_any_address_and_with_one_that_merely_comes_first_the_stored_one_stays(
    etcd: Etcd, machine: Namespace
) -> None:
    async with watching(etcd) as watcher:
        revision = etcd.revision()
        # eth1 comes later in the kernel's order, so first-found would take it at a start.
        machine.run("ip", "address", "add", "192.0.2.9/28", "dev", "eth1")
        await until(lambda: watcher.looked >= 2)
        machine.run("ip", "address", "flush", "dev", "eth1")
        machine.run("ip", "address", "flush", "dev", "eth0")
        await until(lambda: watcher.looked >= 3)
        machine.run("ip", "address", "add", "10.99.1.1/24", "dev", "eth0")
        await until(lambda: watcher.looked >= 4)
        assert (etcd.revision(), watcher.changed) == (revision, 0)


@pytest.mark.asyncio
@pytest.mark.promise("M-148")
async def test_a_corrected_mask_is_stored_also_for_an_address_set_by_hand(
    etcd: Etcd, machine: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    machine.run("ip", "address", "flush", "dev", "eth0")
    machine.run("ip", "address", "add", "10.99.1.1/32", "dev", "eth0")
    async with watching(etcd, IP="10.99.1.1") as watcher:
        assert stored(etcd) == "10.99.1.1/32"
        assert "IP 10.99.1.1/32 has no subnet: cross-subnet pools" in caplog.text
        machine.run("ip", "address", "add", "10.99.1.1/24", "dev", "eth0")
        machine.run("ip", "address", "delete", "10.99.1.1/32", "dev", "eth0")
        await until(lambda: stored(etcd) == "10.99.1.1/24")
        await until(lambda: watcher.changed == 1)
        assert not watcher.gone


@pytest.mark.asyncio
async def test_an_address_that_another_node_has_is_refused_and_said_once(
    etcd: Etcd, machine: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"kind": "Node", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "node2"}}
    etcd.put(
        NODES + "node2", json.dumps(other | {"spec": {"bgp": {"ipv4Address": "10.99.1.2/24"}}})
    )
    async with watching(etcd, AUTODETECT_POLL_INTERVAL="100ms") as watcher:
        machine.run("ip", "address", "add", "10.99.1.2/24", "dev", "eth0")
        machine.run("ip", "address", "delete", "10.99.1.1/24", "dev", "eth0")
        looked = watcher.looked
        await until(lambda: watcher.looked >= looked + 3)
        said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert [one for one in said if "belongs to Node(node2)" in one] == said[-1:]
        assert stored(etcd) == "10.99.1.1/24"


def test_what_is_not_detected_is_not_followed(tmp_path: Path) -> None:
    """It returns instead of watching, and asks no datastore."""
    from node.start import redetect

    for wish in ({}, {"IP": "none"}, {"IP": "10.99.1.1/24"}, {"CALICO_NETWORKING_BACKEND": "none"}):
        asyncio.run(redetect.keep(wish, "node1", settings(wish)))
