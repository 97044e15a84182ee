"""DEL asks the datastore as little as it can, and still takes everything away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.node.del_cache import LIMIT, DelCache
from cni.node.released import FIRST, Released
from cni.node.released import LIMIT as REMEMBERED
from cni.server.collection import SWEEPS
from cni.server.daemon import Daemon
from ipam.allocator.requests import Granted
from libcalico.datastore.interface import Entry
from libcalico.model import Handle
from libcalico.model.keys import HandleKey
from tests.cni.test_attachment import WEB
from tests.cni.world import World, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


@contextmanager
def counted(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls of the datastore meanwhile."""
    calls: list[str] = []
    store = daemon.context.store

    def counting(name: str, real: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            calls.append(name)
            return await real(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("get", "get_many", "list", "commit"):
            patch.setattr(store, name, counting(name, getattr(store, name)))
        yield calls


def sweeps() -> float:
    """How many sweeps of the collector this process has seen to their end."""
    return SWEEPS.value("complete") or 0.0


async def read_all(daemon: Daemon, swept: float) -> None:
    """Until collector and restorer have read what they read at start, which is not the DEL's.

    `swept`: the sweeps before. A comparison that was made is repeated only after minutes.
    """
    await until(lambda: sweeps() > swept and daemon.restorer.gap > 60)


@pytest.mark.asyncio
async def test_a_del_of_what_this_daemon_added_is_one_transaction(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = sweeps()
    async with node.daemon() as daemon:
        await read_all(daemon, swept)
        result_of(await node.add(pod))
        with counted(daemon, monkeypatch) as calls:
            assert (await node.delete(pod)).status == 0
        assert calls == ["commit"]
        node.assert_clean()


@pytest.mark.asyncio
async def test_after_a_restart_it_is_one_turn_of_reading_and_one_transaction(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.daemon():
        result_of(await node.add(pod))
    swept = sweeps()
    async with node.daemon(prepare=False) as daemon:
        await read_all(daemon, swept)
        with counted(daemon, monkeypatch) as calls:
            assert (await node.delete(pod)).status == 0
        assert sorted(calls) == ["commit", "get_many", "list"]
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_repeated_del_asks_nothing_until_an_add_or_another_store(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept, now = sweeps(), 1000.0
    async with node.daemon() as daemon:
        await read_all(daemon, swept)
        context = daemon.context
        monkeypatch.setattr(context, "released", Released(lambda: now))
        result_of(await node.add(pod))
        assert (await node.delete(pod)).status == 0
        with counted(daemon, monkeypatch) as calls:
            for _ in range(5):
                assert (await node.delete(None)).status == 0
            assert calls == []
            now += FIRST
            assert (await node.delete(None)).status == 0
            assert sorted(calls) == ["get_many", "list"], "now and then it asks, and finds nothing"
            now += FIRST
            assert (await node.delete(None)).status == 0
            assert len(calls) == 2, "the pause has grown"
        for again in (result_of(await node.add(pod)), node.in_use()):
            assert again
        assert (await node.delete(pod)).status == 0
        node.assert_clean()
        with counted(daemon, monkeypatch) as calls:
            daemon._store_replaced()
            calls.clear()
            assert (await node.delete(None)).status == 0
            assert {"get_many", "list"} <= set(calls)


def test_what_is_released_is_remembered_ever_longer_and_not_for_ever() -> None:
    now = 0.0
    released = Released(lambda: now)
    assert not released.holds(WEB)
    pauses = []
    for _ in range(8):
        released.note(WEB)
        began = now
        while released.holds(WEB):
            now += 15
        pauses.append(now - began)
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
    released.forget(WEB)
    released.note(WEB)
    now += FIRST
    assert not released.holds(WEB)


def test_an_add_ends_what_was_remembered_of_its_container_under_any_name() -> None:
    """A runtime's DEL may lack the pod's name, and the ADD after it has one."""
    released, nameless = Released(lambda: 0.0), replace(WEB, namespace="", pod="")
    released.note(nameless)
    assert released.holds(nameless)
    assert not released.holds(WEB), "with the name more can be found"
    released.forget(WEB)
    assert not released.holds(nameless)


def test_few_attachments_are_remembered() -> None:
    released = Released(lambda: 0.0)
    many = [replace(WEB, container_id=f"c{number}") for number in range(REMEMBERED + 1)]
    for one in many:
        released.note(one)
    assert [released.holds(one) for one in many[:2]] == [False, True]


@pytest.mark.asyncio
async def test_a_memory_that_is_out_of_date_does_no_harm(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of the endpoint changed, a second interface came, the address was freed by hand."""
    path = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node1-k8s-web--1-eth0"
    swept = sweeps()
    async with node.daemon() as daemon:
        await read_all(daemon, swept)
        result_of(await node.add(pod))
        value = node.etcd.get(path)
        assert value
        node.etcd.put(path, value.replace(b'"labels":{', b'"labels":{"new":"label",'))
        with counted(daemon, monkeypatch) as calls:
            assert (await node.delete(pod)).status == 0
        assert calls == ["commit", "commit"], "the conflict itself says what is there"
        node.assert_clean()

        result_of(await node.add(pod))
        net1 = result_of(await node.add(pod, ifname="net1"))
        assert (await node.delete(pod)).status == 0
        (endpoint,) = node.endpoints().values()
        assert endpoint["spec"]["ipNetworks"] == [net1["ips"][0]["address"]]
        assert node.in_use() == 1, "the address of the other interface is spared"
        assert (await node.delete(pod, ifname="net1")).status == 0
        node.assert_clean()

        result_of(await node.add(pod))
        node.etcd.delete("/calico/ipam/v2/handle/")
        assert (await node.delete(pod)).status == 0
        assert node.endpoints() == {}
        assert node.links() == []


def test_memories_are_bounded_and_forget_shared_handles() -> None:
    from ipaddress import ip_address

    def granted(attachment: Any, count: int) -> Granted:
        handle = HandleKey(attachment.handle_id)
        return Granted(
            (ip_address("10.65.0.1"),),
            entries={
                handle: Entry(handle, Handle(block={"10.65.0.0/26": count}), 7, b""),
                attachment.endpoint_key: Entry(attachment.endpoint_key, None, 7, b""),
            },
        )

    cache = DelCache()
    many = [replace(WEB, container_id=f"c{number}") for number in range(LIMIT + 1)]
    for one in many:
        cache.keep(one, granted(one, 1))
    assert cache.pop(many[0]) is None
    assert cache.pop(many[1]) is not None
    assert cache.pop(many[1]) is None
    cache.keep(many[2], granted(many[2], 2))
    assert cache.pop(many[2]) is None
