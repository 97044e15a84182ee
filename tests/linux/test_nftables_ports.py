"""Sets of ports: rules that ask one are rewritten, and no packet finds the set empty."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest

from linux.nftables import Code, Hook, Packed, Ruleset, pack
from linux.nftables import expressions as x
from linux.nftables import statements as st
from tests.support.netns import Namespace, network_namespace

INPUT = Hook("filter", 1, 0)
UDP = 17
SEND = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 9))
while True:
    try:
        s.send(b"x")
    except OSError:
        pass
"""


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("ports") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        yield space


@pytest.fixture
def flood(space: Namespace) -> Iterator[None]:
    """Packets to UDP port 9, without end."""
    senders = [subprocess.Popen(space.command(sys.executable, "-c", SEND)) for _ in range(2)]
    yield
    for sender in senders:
        sender.kill()
        sender.wait()


def story(told: Callable[[Ruleset], Awaitable[None]]) -> None:
    async def run() -> None:
        with Ruleset((4, 6), "mine") as rules:
            await told(rules)

    asyncio.run(run())


def action(code: int, chain: str = "", *, comment: str = "") -> Code:
    return Code((st.counter() + st.verdict(code, chain),), comment)


def deny(*ports: int, comment: str = "") -> Code:
    """Drops UDP packets to these ports."""
    match = x.ports(False, [(port, port) for port in ports])
    return Code((x.protocol(UDP, False), *match, st.counter() + st.verdict(st.DROP)), comment)


def filler(text: str) -> Packed:
    """A hundred rules of which none matches."""
    return pack([Code((x.mark(7, 0xFF, False) + st.verdict(st.DROP),), text)] * 100)


def port_sets(space: Namespace) -> list[str]:
    return [
        line.split()[1]
        for line in space.run("nft", "list", "table", "ip", "mine").splitlines()
        if line.startswith("\tset ")
    ]


@pytest.mark.usefixtures("flood")
@pytest.mark.parametrize("others", [0, 100])
def test_no_packet_passes_while_a_denying_rule_is_rewritten(others: int) -> None:
    """Its ports are denied before and after, with any other rules in the batch."""

    async def told(rules: Ruleset) -> None:
        outer = [action(st.JUMP, "policy"), action(st.ACCEPT)]
        rules.want(4, "INPUT", pack(outer), INPUT)
        passed = set()
        for number in range(20):
            more = 20 + number // 5
            rules.want(4, "policy", pack([deny(9, more, 1000, comment=str(number))]))
            for each in range(others):
                rules.want(4, f"other{each}", filler(str(number)))
            await rules.commit()
            counters = (await rules.counters(4, ["INPUT"]))["INPUT"]
            passed.add(counters[-1][0])
        # What came between the first rules of all and their sets is not counted.
        assert len(passed) == 1, passed

    story(told)


def test_a_set_goes_with_the_last_rule_that_asks_it(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        rules.want(4, "INPUT", pack([deny(80, 443), action(st.JUMP, "one")]), INPUT)
        rules.want(4, "one", pack([deny(443, 80), deny(1, 2, 3, 5)]))
        await rules.commit()
        assert port_sets(space) == ["ports-1-3_5", "ports-80_443"]
        assert "dport @ports-80_443" in space.run("nft", "list", "chain", "ip", "mine", "one")
        rules.want(4, "one", pack([deny(80, 443)]))
        await rules.commit(sweep=False)
        assert rules.garbage
        await rules.commit()
        assert port_sets(space) == ["ports-80_443"]
        assert not rules.garbage
        assert (await rules.commit()).messages == 0
        rules.unwant(4, "one")
        rules.want(4, "INPUT", pack([action(st.ACCEPT)]), INPUT)
        await rules.commit()
        assert port_sets(space) == []

    story(told)


def test_what_an_owner_before_left_is_used_or_removed(space: Namespace) -> None:
    async def before(rules: Ruleset) -> None:
        rules.want(4, "INPUT", pack([deny(80, 443), deny(1, 3)]), INPUT)
        await rules.commit()

    async def after(rules: Ruleset) -> None:
        rules.want(4, "INPUT", pack([deny(80, 443)]), INPUT)
        await rules.commit()
        assert port_sets(space) == ["ports-80_443"]
        assert await rules.accepts(4, pack([deny(80, 443), deny(7, 9)]))
        assert await rules.refresh() == ()

    story(before)
    story(after)


def test_nobody_changes_a_set_that_a_rule_asks(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        rules.want(4, "INPUT", pack([deny(80, 443)]), INPUT)
        await rules.commit()

    story(told)
    wanted = space.run("nft", "list", "table", "ip", "mine")
    assert "elements = { 80, 443 }" in wanted
    for words in ("flush set ip mine ports-80_443", "add element ip mine ports-80_443 { 1 }"):
        with pytest.raises(AssertionError, match="Device or resource busy"):
            space.run("nft", words)
    assert space.run("nft", "list", "table", "ip", "mine") == wanted


def test_a_set_of_many_ports(space: Namespace) -> None:
    """More than one message holds; its name is short all the same."""
    ports = range(1, 2001, 2)

    async def told(rules: Ruleset) -> None:
        rules.want(4, "INPUT", pack([deny(*ports)]), INPUT)
        await rules.commit()

    story(told)
    (name,) = port_sets(space)
    assert len(name) < 60
    listed = space.run("nft", "list", "set", "ip", "mine", name)
    assert listed.count(",") >= len(ports) - 1
