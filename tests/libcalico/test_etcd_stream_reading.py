"""When the watches' own connection is read: held after an offer, gathered where nobody hurries."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore import connect
from libcalico.datastore.etcd import http2, stream
from libcalico.datastore.etcd.message_stream import Broken
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Selection
from libcalico.model import HandleKey
from tests.libcalico.stream_parts import (
    LIMIT,
    data,
    line_of,
    made,
    message,
    put,
    stood,
    told,
)
from tests.support.etcd import Etcd
from tests.support.patience import until


@pytest.mark.asyncio
async def test_what_is_held_comes_after_all_and_however_often_it_is_held(etcd: Etcd) -> None:
    """STR-4: a hold that is renewed for ever keeps nothing back for ever."""
    async with etcd.connect() as store:
        batches = store.watch([Selection("Handle")], await store.commit([put("held.0")]))
        await stood(batches)
        assert isinstance(store, EtcdDatastore)
        line = line_of(store)
        holding = asyncio.create_task(_hold_for_ever(store))
        try:
            for number in range(5):
                await store.commit([put(f"held.{number}")])
                assert await told(batches, 1) == [(str(HandleKey(f"held.{number}")), True)]
        finally:
            holding.cancel()
        await until(lambda: not line.paused)


async def _hold_for_ever(store: EtcdDatastore) -> None:
    while True:
        store.hold()
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_a_gathering_store_reads_what_came_at_once(etcd: Etcd) -> None:
    async with etcd.connect() as writer:
        revision = await writer.commit([put("gather.x")])
        store = await connect(etcd.config(), gather=1.0)
        try:
            batches = store.watch([Selection("Handle")], revision)
            await stood(batches)
            line = line_of(store)
            await until(lambda: not line.paused)
            start = time.monotonic()
            for number in range(3):
                await writer.commit([put(f"gather.{number}")])
            assert len(await told(batches, 3)) == 3
            assert time.monotonic() - start > 0.9, "the first waited for the others"
        finally:
            await store.close()


@pytest.mark.asyncio
async def test_a_hold_is_bounded_and_a_reading_comes_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """STR-4, on a clock of our own."""
    line, wires = made()
    clock = [100.0]
    monkeypatch.setattr(line._loop, "time", lambda: clock[0])
    calls: list[float] = []

    def call_at(when: float, _callback: object) -> asyncio.TimerHandle:
        calls.append(when)
        return asyncio.TimerHandle(when, lambda: None, (), line._loop)

    monkeypatch.setattr(line._loop, "call_at", call_at)
    line.hold()
    assert not wires.reading
    assert calls == [100.0 + stream.HOLD_SECONDS]
    for _ in range(30):
        clock[0] += 0.01
        line.hold()
        if clock[0] >= calls[-1]:
            line._released()
        if not line.paused:
            break
    assert clock[0] <= 100.0 + stream.HOLD_MOST + 0.01
    assert wires.reading
    line.hold()
    assert wires.reading, "first one reading"
    await asyncio.sleep(0)
    line.hold()
    assert wires.reading, "which is the next turn's"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    line.hold()
    assert not wires.reading
    line.end("over")


FULL = data(message(b"m" * (http2.READ_BYTES // 4 - 9 - 5))) * 4
"""As much as is read at once."""


@pytest.mark.asyncio
async def test_a_flood_is_read_whole_before_the_next_hold() -> None:
    line, wires = made(gather=0.01)
    opened = line.open(b"x")
    opened.stands()
    line.data_received(FULL)
    assert not line.paused, "gathering would hold up the rest"
    assert len(opened._came) == 4
    line.gather = 0.0
    line.hold()
    assert line._release is not None
    line._release.cancel()
    line._until = 0.0
    line._released()
    for _ in range(20):
        line.data_received(FULL)
        await asyncio.sleep(0)
        line.hold()
        assert wires.reading
    await until(lambda: not line._passing)
    line.hold()
    assert not wires.reading
    line.end("over")


@given(st.floats(0, 1e6), st.lists(st.floats(0, 0.1), max_size=30))
def test_no_hold_is_longer_than_the_longest(since: float, waits: list[float]) -> None:
    now, due = since, since + stream.HOLD_SECONDS
    for wait in waits:
        now += wait
        if now >= due:
            break
        due = stream.held_until(since, now)
    assert due <= since + stream.HOLD_MOST
    assert due >= now or now >= due


@pytest.mark.asyncio
async def test_nothing_waits_while_a_watch_is_being_begun() -> None:
    line, wires = made(gather=5.0)
    opened = line.open(b"x")
    line.hold()
    assert wires.reading
    line.data_received(data(message(b"created")))
    assert await asyncio.wait_for(opened.read(), LIMIT) == b"created"
    opened.stands()
    line.data_received(data(message(b"later")))
    assert line.paused
    assert not opened._came
    line.end("over")


@pytest.mark.asyncio
async def test_gathered_bytes_are_read_in_order_and_the_next_wait_again() -> None:
    line, wires = made(gather=0.01)
    opened = line.open(b"x")
    opened.stands()
    whole = data(message(b"one")) + data(message(b"two"))
    line.data_received(whole[:20])
    assert line.paused
    line.data_received(whole[20:])  # as a secured connection may, though it is paused
    await until(lambda: not line.paused)
    assert [await opened.read(), await opened.read()] == [b"one", b"two"]
    assert wires.reading
    # The reading that follows is taken as it comes, and what follows that waits.
    line._passing = True
    line.data_received(data(message(b"three")))
    assert await asyncio.wait_for(opened.read(), LIMIT) == b"three"
    assert line.paused
    line.end("over")
    with pytest.raises(Broken):
        await opened.read()
