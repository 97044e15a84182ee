"""What a peer sent and nobody has read yet is bounded, and losing any of it ends the session."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import portions, protocol
from bgp.speaker.exabgp.backlog import Backlog
from bgp.speaker.exabgp.portions import Portions
from bgp.speaker.interface import DownReason, PeerDown, PeerUp
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, session, static, story
from tests.support import bgp_wire as wire
from tests.support.patience import until, wait_for

GOOD = wire.ORIGIN + wire.AS_PATH + wire.NEXT_HOP


def update(peer: int, size: int = 20) -> bytes:
    return f"update 10.9.0.{peer} 4 ".encode() + b"0" * size


def state(peer: int, what: str) -> bytes:
    address = f'{{"address":{{"peer":"10.9.0.{peer}"}},"state":"{what}"}}'
    return f'{{"type":"state","neighbor":{address}}}'.encode()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("update"), st.integers(1, 2), st.integers(0, 90)),
            st.tuples(st.just("down"), st.integers(1, 2), st.just(0)),
            st.tuples(st.just("read"), st.just(0), st.integers(0, 5)),
            st.tuples(st.just("taken"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_bounds(steps: list[tuple[str, int, int]]) -> None:
    """BGP-9: never more than the limit of one peer; without an overflow every line arrives."""
    backlog, queue, decoded = Backlog(200), list[bytes](), list[bytes]()
    over: set[int] = set()
    for what, number, size in steps:
        if what == "update":
            line = update(number, size)
            got = backlog.admit([line])
            if number in over:
                assert got == []
            elif got != [line]:
                assert got == [protocol.OVERFLOW + f"10.9.0.{number}".encode()]
                over.add(number)
            queue += got
        elif what == "down":
            queue += backlog.admit([state(number, "down")])
            over.discard(number)
        elif what == "read":
            for line in queue[:size]:
                backlog.decoded(line)
                decoded.append(line)
            del queue[:size]
        else:
            backlog.taken()
            decoded.clear()
        for each in (1, 2):
            held = sum(len(line) for line in queue + decoded if line.startswith(update(each, 0)))
            assert held <= 200


def test_a_peer_that_floods_loses_its_session_alone() -> None:
    """The agent stands still until it is too much: CEASE 6/8, a condition, the other stays."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session(), static("10.50.0.0/24"))
        raw = RawPeer(RAW[0])
        lab.speaker._backlog.limit = 64 << 10
        await lab.speaker.configure([peer(BIRD), peer(raw.local, passive=True)])
        await raw.dial()
        await raw.open()
        await until(lambda: lab.heard.up(BIRD, raw.local), "both")
        # As much in small pieces, with time to read it, is no fault.
        one = wire.message(
            wire.UPDATE, wire.update(attributes=GOOD, reachable=wire.nlri("10.66.0.0/24"))
        )
        for number in range(20):
            await raw.send_bytes(one * 100)
            net = f"10.67.{number}.0/24"
            await raw.update(attributes=GOOD, reachable=wire.nlri(net))
            await until(lambda net=net: net in lab.heard.prefixes(raw.local), "read")  # type: ignore[misc]
        assert lab.heard.of(PeerDown) == []
        await raw.send_bytes(one * 2000)
        wait_for(lambda: lab.speaker._backlog._over)  # the loop is held on purpose
        await until(lambda: lab.heard.of(PeerDown, raw.local), "down")
        (down,) = lab.heard.of(PeerDown, raw.local)
        assert isinstance(down, PeerDown)
        assert down.reason is DownReason.LIMIT
        await until(lambda: raw.notifications() == [(6, 8)], "told")
        ((subject, why),) = lab.speaker.conditions()
        assert subject == f"BGP peer {raw.local}"
        assert "64 KiB" in why
        assert lab.heard.of(PeerDown, BIRD) == []
        assert len(lab.heard.of(PeerUp, BIRD)) == 1
        await raw.close()

    story(body)


def test_a_large_table_is_worked_off_while_it_comes() -> None:
    """Lines stay lines until their turn: in order, a portion a turn, none is left at the end."""

    async def body() -> None:
        turns: list[list[bytes]] = []
        queue = Portions(turns.append)
        lines = [b"%03d" % number + b"." * (portions.PORTION // 4) for number in range(20)]
        for line in lines:  # as many readings as lines, before the loop has turned
            queue.add([line])
        assert turns == []
        for _ in range(3):
            await asyncio.sleep(0)
        queue.finish()
        assert [line for turn in turns for line in turn] == lines
        assert [len(turn) for turn in turns] == [4, 4, 4, 8]
        queue.add(lines[:1])
        for _ in range(2):
            await asyncio.sleep(0)
        assert turns[-1] == lines[:1]

    asyncio.run(body())
