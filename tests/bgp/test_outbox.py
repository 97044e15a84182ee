"""What waits for a connection: order, borders of messages, slow and broken peers."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import outbox
from bgp.speaker.exabgp.outbox import Outbox
from tests.support import bgp_wire as wire
from tests.support.patience import HANG

BEAT = wire.message(wire.KEEPALIVE)


class Kernel:
    """Takes so many octets at each call; 0: none now."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.taken = sizes, b""

    def send(self, data: memoryview) -> int:
        size = self.sizes.pop(0) if self.sizes else len(data)
        if not size:
            raise BlockingIOError
        self.taken += bytes(data[:size])
        return min(size, len(data))


def cut(stream: bytes) -> list[bytes]:
    """The messages of a stream; it must have no other octets."""
    found = []
    while stream:
        length = int.from_bytes(stream[16:18], "big")
        assert stream[:16] == wire.MARKER
        assert len(stream) >= length >= 19
        found.append(stream[:length])
        stream = stream[length:]
    return found


steps = st.lists(
    st.one_of(st.integers(1, 3000), st.sampled_from(["beat", "turn"])), min_size=1, max_size=40
)


@given(steps, st.lists(st.sampled_from([0, 1, 7, 500, 70_000]), max_size=60))
def test_whole_and_in_order(story: list[int | str], sizes: list[int]) -> None:
    """However little the kernel takes: no message in another, none lost, UPDATEs in their order."""
    box, kernel = Outbox(), Kernel(sizes)
    said: list[bytes] = []
    beats = 0
    for step in story:
        if step == "turn":
            box.flush(kernel.send)
        elif step == "beat":
            box.urge(BEAT)
            beats += 1
        else:
            said.append(wire.message(wire.UPDATE, bytes([len(said)]) * int(step)))
            box.add(said[-1])
    while box:
        box.flush(kernel.send)
    got = cut(kernel.taken)
    assert [each for each in got if each != BEAT] == said
    assert min(beats, 1) <= got.count(BEAT) <= beats
    assert box.size == 0


def test_what_is_urgent_passes_what_waits() -> None:
    """Behind the chunk that has begun, before all others; the same message does not wait twice."""
    box, kernel = Outbox(), Kernel([10, 0])
    updates = [wire.message(wire.UPDATE, bytes([number]) * 4000) for number in range(100)]
    for update in updates:
        box.add(update)
    assert not box.flush(kernel.send)
    for _ in range(5):
        box.urge(BEAT)
    kernel.sizes = []
    while box:
        box.flush(kernel.send)
    got = cut(kernel.taken)
    assert got.count(BEAT) == 1
    assert got.index(BEAT) * len(updates[0]) <= outbox.CHUNK + len(updates[0])


def test_a_peer_that_reads_nothing() -> None:
    """A real socket that is full: the box says how long nothing moved, and a last word passes."""
    near, far = socket.socketpair()
    near.setblocking(False)
    box = Outbox()
    for number in range(2000):
        box.add(wire.message(wire.UPDATE, bytes([number % 256]) * 4000))
    while box.flush(near.send):
        pass
    assert box
    assert 0 <= box.stuck() < HANG
    box._moved -= 1000
    assert box.stuck() >= 1000
    box.drop()
    box.urge(wire.message(wire.NOTIFICATION, b"\6\4"))
    far.settimeout(HANG)
    read = b""
    while box:
        read += far.recv(1 << 20)
        box.flush(near.send)
    near.close()
    while more := far.recv(1 << 20):
        read += more
    got = cut(read)
    assert got[-1][18:] == bytes([wire.NOTIFICATION, 6, 4])
    assert len(got) < 2000
    assert box.stuck() == 0


def test_a_broken_connection() -> None:
    near, far = socket.socketpair()
    far.close()
    box = Outbox()
    box.add(BEAT)
    with pytest.raises(OSError, match="Broken pipe"):
        box.flush(near.send)
    near.close()
