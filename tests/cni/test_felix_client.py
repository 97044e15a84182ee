"""The line to felix outlives felix; the journal outlives us."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cni.node import del_queue
from cni.node.del_queue import DelQueue
from cni.node.felix_client import FelixClient, Subject
from cni.request.errors import CNIError
from cni.request.request import Command, Request
from cni.socket import protocol
from libcalico.errors import DatastoreUnavailable, InvalidValue
from linux.errors import KernelError
from tests.cni.test_attachment import request
from tests.cni.world import FelixPeer
from tests.support.patience import HANG, until

SUBJECT = Subject("default", "node1-k8s-web-eth0", "c" * 64)


@pytest.mark.asyncio
async def test_a_wait_survives_a_restart_of_felix(tmp_path: Path) -> None:
    """CNI-16."""
    client = FelixClient(tmp_path / "node.sock")
    running = asyncio.create_task(client.run())
    try:
        client.offer(SUBJECT, b"{}")
        waiting = asyncio.create_task(client.in_force(SUBJECT, HANG))
        async with FelixPeer(tmp_path / "node.sock") as felix:
            felix.hold = True
            await until(lambda: len(felix.messages) == 2)
        assert not waiting.done()
        async with FelixPeer(tmp_path / "node.sock") as felix:
            assert await waiting == ""
            assert felix.offers(), "the offer is told again"
            client.stop_waiting(SUBJECT)
            client.retract(SUBJECT)
            await until(felix.retractions)
            assert felix.retractions()[0].container_id == "c" * 64
        with pytest.raises(TimeoutError):
            await client.in_force(SUBJECT, 0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.asyncio
async def test_the_word_on_a_former_offer_is_none_on_the_last(tmp_path: Path) -> None:
    """CNI-23: felix had programmed the addresses that a lost race took away."""
    client = FelixClient(tmp_path / "node.sock")
    running = asyncio.create_task(client.run())
    try:
        async with FelixPeer(tmp_path / "node.sock") as felix:
            client.offer(SUBJECT, b'{"one": 1}')
            client.expect(SUBJECT)
            assert await client.in_force(SUBJECT, HANG) == ""
            felix.hold = True
            client.offer(SUBJECT, b'{"two": 2}')
            await until(lambda: len(felix.awaits()) == 2)
            with pytest.raises(TimeoutError):
                await client.in_force(SUBJECT, 0.2)
            # Nor is a word that was under way when the offer changed.
            first, second = felix.awaits()
            await felix.answer(first)
            with pytest.raises(TimeoutError):
                await client.in_force(SUBJECT, 0.2)
            await felix.answer(second)
            assert await client.in_force(SUBJECT, HANG) == ""
            # The same again asks nothing anew.
            client.offer(SUBJECT, b'{"two": 2}')
            assert await client.in_force(SUBJECT, HANG) == ""
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


WEB = {
    "kind": "WorkloadEndpoint",
    "metadata": {"name": SUBJECT.name, "namespace": "default"},
    "spec": {
        "orchestrator": "k8s",
        "node": "node1",
        "pod": "web",
        "endpoint": "eth0",
        "containerID": SUBJECT.container_id,
        "interfaceName": "cali1",
        "mac": "aa:bb:cc:dd:ee:01",
        "ipNetworks": ["10.65.0.1/32", "fd65::1/128"],
    },
}
SAID = {
    "ifaceName": "cali1",
    "mac": "aa:bb:cc:dd:ee:01",
    "ipv4Nets": ["10.65.0.1/32"],
    "ipv6Nets": ["fd65::1/128"],
}


@pytest.mark.asyncio
async def test_calicos_felix_says_it_by_a_file(tmp_path: Path) -> None:
    """CNI-16."""
    client = FelixClient(tmp_path / "node.sock", tmp_path / "endpoint-status")
    client.offer(SUBJECT, msgspec.json.encode(WEB))
    file = tmp_path / "endpoint-status" / "k8s default%2Fweb eth0"
    waiting = asyncio.create_task(client.in_force(SUBJECT, HANG))
    await asyncio.sleep(0.15)
    assert not waiting.done()
    file.parent.mkdir()
    for predecessor in ({"mac": "aa:bb:cc:dd:ee:99"}, {"ipv4Nets": ["10.65.0.9/32"]}):
        file.write_bytes(msgspec.json.encode({**SAID, **predecessor}))
        await asyncio.sleep(0.15)
        assert not waiting.done()
    file.write_bytes(msgspec.json.encode({**SAID, "bgpPeerName": "x"}))
    assert await waiting == ""


@pytest.mark.asyncio
async def test_a_file_that_no_felix_can_write_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "endpoint-status").mkdir()
    client = FelixClient(tmp_path / "node.sock", tmp_path / "endpoint-status")
    spec = WEB["spec"]
    assert isinstance(spec, dict)
    client.offer(SUBJECT, msgspec.json.encode(WEB | {"spec": spec | {"pod": "p" * 253}}))
    assert await client.in_force(SUBJECT, HANG) == ""


@pytest.mark.asyncio
async def test_a_file_says_nothing_where_our_felix_was(tmp_path: Path) -> None:
    """CNI-16: its socket outlives a felix that was killed, and its files do, too."""
    client = FelixClient(tmp_path / "node.sock", tmp_path)
    client.offer(SUBJECT, msgspec.json.encode(WEB))
    (tmp_path / "k8s default%2Fweb eth0").write_bytes(msgspec.json.encode(SAID))
    (tmp_path / "node.sock").touch()
    with pytest.raises(TimeoutError):
        await client.in_force(SUBJECT, 0.3)


@pytest.mark.asyncio
async def test_a_name_too_long_for_a_file_is_waited_for_where_our_felix_is_to_come(
    tmp_path: Path,
) -> None:
    """CNI-16: no directory, so it is not Calico's felix that is away."""
    client = FelixClient(tmp_path / "node.sock", tmp_path / "endpoint-status")
    spec = WEB["spec"]
    assert isinstance(spec, dict)
    client.offer(SUBJECT, msgspec.json.encode(WEB | {"spec": spec | {"pod": "p" * 253}}))
    with pytest.raises(TimeoutError):
        await client.in_force(SUBJECT, 0.3)


@pytest.mark.asyncio
async def test_a_record_stays_until_its_release_is_committed(tmp_path: Path) -> None:
    """CNI-17, CNI-18."""
    away = True
    replayed: list[protocol.PendingDelete] = []

    async def replay(record: protocol.PendingDelete, _: Path) -> None:
        if away:
            raise DatastoreUnavailable("etcd is away")
        replayed.append(record)

    journal = DelQueue(tmp_path / "pending", replay)
    web = request()
    assert not journal.holds(web)
    journal.record(_as_del(web))
    journal.record(_as_del(web))
    assert journal.count() == 1
    assert journal.holds(web)
    assert not await journal.replay_all()
    assert journal.holds(web)
    away = False
    assert await journal.replay_all()
    assert not journal.holds(web)
    assert replayed[0].env["CNI_CONTAINERID"] == "c" * 64


@pytest.mark.asyncio
async def test_an_add_of_unknown_outcome_is_looked_at_again(tmp_path: Path) -> None:
    """CNI-19: a transaction that a hanging datastore swallowed may come to light later."""
    replayed = 0

    async def replay(*_: Any) -> None:
        nonlocal replayed
        replayed += 1

    journal = DelQueue(tmp_path / "pending", replay)
    journal.record(request())
    journal.record(_as_del(request()))
    assert await journal.replay_all()
    journal.released(_as_del(request()))
    assert await journal.replay_all()
    assert replayed == 2
    assert journal.holds(request())
    journal.drop(request())
    assert not journal.holds(request())


@pytest.mark.asyncio
async def test_the_time_of_an_adds_record_begins_with_its_first_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-19: however long the datastore was away."""
    now, away = 1000.0, True

    async def replay(*_: Any) -> None:
        if away:
            raise DatastoreUnavailable("etcd is away")

    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    journal = DelQueue(tmp_path / "pending", replay)
    journal.record(request())
    assert not await journal.replay_all()
    now += 10 * del_queue.LATE_SECONDS
    away = False
    assert await journal.replay_all()
    now += del_queue.LATE_SECONDS - 1
    assert await journal.replay_all()
    assert journal.holds(request())
    now += 2
    assert await journal.replay_all()
    assert not journal.holds(request())


@pytest.mark.asyncio
async def test_what_is_recorded_during_a_replay_stays(tmp_path: Path) -> None:
    async def replay(*_: Any) -> None:
        journal.record(request())

    journal = DelQueue(tmp_path / "pending", replay)
    journal.record(_as_del(request()))
    assert not await journal.replay_all()
    assert journal.holds(request())


@pytest.mark.asyncio
async def test_a_pass_stops_where_the_datastore_is_away(tmp_path: Path) -> None:
    """One wait, not one for each record; and none that always fails keeps others back."""
    tried: list[str] = []
    failure: Exception = DatastoreUnavailable("etcd is away")

    async def replay(_: protocol.PendingDelete, file: Path) -> None:
        tried.append(file.name)
        raise failure

    journal = DelQueue(tmp_path, replay)
    names = [f"{number}.json" for number in range(3)]
    for name in names:
        (tmp_path / name).write_text('{"version":1,"argv0":"x","env":{},"stdin":"","time":1}')
    for _ in range(4):
        assert not await journal.replay_all()
    assert tried == [*names, names[0]]
    for error in (KernelError(16, "unwiring"), InvalidValue("f", 1, "r"), RuntimeError("fault")):
        tried.clear()
        failure = error
        assert not await journal.replay_all()
        assert sorted(tried) == names


@pytest.mark.asyncio
async def test_what_is_no_record_is_set_aside_and_links_are_not_followed(tmp_path: Path) -> None:
    async def replay(*_: Any) -> None:
        raise CNIError(7, "unusable")

    journal = DelQueue(tmp_path, replay)
    (tmp_path / "junk.json").write_text("{")
    (tmp_path / ".half.json").write_text("{")
    (tmp_path / "bad.json").write_text(
        '{"version":1,"argv0":"calico","env":{},"stdin":"","time":1}'
    )
    secret = tmp_path / "elsewhere"
    secret.write_text("secret")
    (tmp_path / "link.json").symlink_to(secret)
    assert not await journal.replay_all()
    assert sorted(path.name for path in tmp_path.glob("*.bad")) == ["bad.bad", "junk.bad"]
    assert secret.read_text() == "secret"


def test_an_unfinished_record_goes_by_how_long_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock may jump by an hour while a writer is between its file and the name."""

    async def replay(*_: Any) -> None:
        raise AssertionError("there is no record")

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "time", lambda: 9e9)
    journal = DelQueue(tmp_path, replay)
    half = tmp_path / ".one.json.7.7"
    half.write_text("{")
    for _ in range(100):
        journal.sweep()
    assert half.exists()
    now += del_queue.UNFINISHED_SECONDS + 1
    journal.sweep()
    assert not half.exists()


def _as_del(add: Request) -> Request:
    env = {**add.env, "CNI_COMMAND": "DEL"}
    return msgspec.structs.replace(add, command=Command.DEL, env=env)
