"""FCO-1, FCO-2: many connections are counted between the loop's other work; losses count."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from felix.flows.collector import Collector
from felix.flows.joiner import Joiner
from felix.rules.nflog_prefix import Tell
from felix.telling import Listener
from linux.netlink import wire as m
from linux.nflog import Logged
from tests.felix.flows.packets import packet
from tests.felix.flows.test_joiner import A, C, World


@dataclass
class Telling:
    """The reader of packets, without a kernel."""

    joined: dict[Listener, Tell] = field(default_factory=dict)

    def join(self, listener: Listener, tell: Tell) -> None:
        self.joined[listener] = tell

    def leave(self, listener: Listener) -> None:
        self.joined.pop(listener, None)


def body(source_port: int, packets: int) -> bytes:
    """A connection from A to C as ctnetlink writes it."""
    a, c = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 3])

    def ends(kind: int, one: bytes, other: bytes, ports: tuple[int, int]) -> bytes:
        return m.nest(
            kind,
            m.nest(1, m.attribute(1, one), m.attribute(2, other)),
            m.nest(
                2,
                m.u8(1, 6),
                m.attribute(2, struct.pack("!H", ports[0])),
                m.attribute(3, struct.pack("!H", ports[1])),
            ),
        )

    counts = m.attribute(1, struct.pack("!Q", packets)) + m.attribute(2, struct.pack("!Q", 60))
    there, back = ends(1, a, c, (source_port, 80)), ends(2, c, a, (80, source_port))
    return struct.pack("=BBH", 2, 0, 0) + there + back + m.nest(9, counts)


def told(joiner: Joiner, ports: range) -> None:
    for port in ports:
        joiner.hear(packet(A, C, 80, port), "APE0|x", 0.0, ingress=False)


def test_many_connections_leave_room_for_other_work() -> None:
    async def story() -> None:
        joiner = Joiner(World())
        told(joiner, range(1, 20_001))

        def slices() -> Iterator[list[bytes]]:
            for first in range(1, 20_001, 100):
                yield [body(port, 2) for port in range(first, first + 100)]

        collector = Collector(joiner, Telling(), slices)  # type: ignore[arg-type]
        turns = 0
        counting = asyncio.ensure_future(collector.flows(0, 15, reconsider=True))
        while not counting.done():
            turns += 1
            await asyncio.sleep(0)
        (flow,) = counting.result()
        assert (flow.counts.packets_out, flow.counts.live) == (40_000, 20_000)
        assert turns > 20, "the loop had its turns"

    asyncio.run(story())


def test_packets_are_heard_by_group_and_losses_are_counted() -> None:
    async def story() -> None:
        joiner = Joiner(World())
        collector = Collector(joiner, Telling(), lambda: iter([[body(1, 1)]]))  # type: ignore[arg-type]
        sent = packet(A, C, 80, 1)
        collector.heard(
            [
                Logged(2, "APE0|x", 0.0, 1, 2, sent),
                Logged(1, "API0|x", 0.0, 1, 2, sent),
                Logged(2, "hello", 0.0, 1, 2, b""),
            ],
            7,
        )
        assert joiner.lost.packets == 7
        (flow,) = await collector.flows(0, 15, reconsider=False)
        assert [hit.name for hit in flow.key.trace.enforced] == ["APE0|x"], "C is not of this node"

    asyncio.run(story())


def test_what_cannot_be_heard_is_said() -> None:
    async def story() -> None:
        telling = Telling()
        collector = Collector(Joiner(World()), telling)  # type: ignore[arg-type]
        collector.open()
        assert telling.joined == {collector: Tell.FLOWS}
        collector.deaf("it broke")
        assert (collector.problem, telling.joined) == ("it broke", {})
        collector.open()
        assert collector.problem == ""
        collector.close()
        collector.close()

    asyncio.run(story())
