"""NFW-1: changes of our tables by others are heard, our own and those of other tables are not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from linux.nftables import Code, NamedSets, Ruleset, Watch, pack
from linux.nftables import statements as st
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nfw") as space, space.entered():
        yield space


OURS = [
    "add rule ip mine one accept",
    "flush chain ip mine one",
    "add element ip mine s { 10.99.0.2 }",
    "add table ip6 mine",
    "flush ruleset",
]
THEIRS = ["add table ip theirs", "add table ip mine2", "add chain ip theirs c"]


def test_only_what_others_do_to_our_tables_is_heard(space: Namespace) -> None:
    async def told() -> None:
        heard = asyncio.Event()
        with Ruleset((4,), "mine") as rules, NamedSets({4: "s"}, "mine") as sets:
            with Watch("mine", [rules.port, sets.port], heard.set):
                sets.create("s", "hash:ip", 4)
                sets.add("s", [f"10.0.{n >> 8}.{n & 255}" for n in range(5000)])
                for number in range(200):
                    rules.want(4, f"chain{number}", pack([Code((st.counter(),))] * 50))
                rules.want(4, "one", pack([Code((st.counter(),))]))
                await rules.commit()
                for words in THEIRS:
                    space.run("nft", *words.split(" ", maxsplit=3))
                await asyncio.sleep(0.1)
                assert not heard.is_set()
                for words in OURS:
                    space.run("nft", *words.split(" ", maxsplit=3))
                    await asyncio.wait_for(heard.wait(), patient(2))
                    heard.clear()
            space.run("nft", "add", "table", "ip", "mine")
            await asyncio.sleep(0.05)
            assert not heard.is_set(), "closed"

    asyncio.run(told())


def test_lost_messages_are_taken_for_a_change(space: Namespace) -> None:
    script = "add table ip theirs\n" + "".join(
        f"add chain ip theirs c{n}\nadd rule ip theirs c{n} accept\n" for n in range(500)
    )

    async def told() -> None:
        heard = asyncio.Event()
        with Watch("mine", [], heard.set) as watch:
            # Little room, and nobody reads while the program runs.
            room = socket.fromfd(watch.fileno(), socket.AF_NETLINK, socket.SOCK_RAW)
            room.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            room.close()
            space.run("nft", "-f", "-", input=script)
            await asyncio.wait_for(heard.wait(), patient(5))

    asyncio.run(told())
