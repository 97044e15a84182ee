"""Segments with and without their checksum: over a cable that fills it in, and one that lies."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.errors import KernelError
from linux.tcp_probe import Target, answered, answered_complete, answers, checksum, segment
from tests.felix.lying_cable import NEEDS_CHECKSUM, NOTE, Cable, as_a_lie, lying_cable
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG

TUNNELS = {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")}
PORT = 179


@contextmanager
def ends() -> Iterator[tuple[Namespace, Namespace, Cable]]:
    """Two hosts with a tunnel between them, over a cable that lies."""
    with network_namespace("a") as a, network_namespace("b") as b, lying_cable(a, b) as cable:
        for number, space in ((1, a), (2, b)):
            space.run(*f"ip address add 10.9.0.{number}/24 dev eth0".split())
            space.run(*["ip", "link", "set", "lo", "up"])
            space.run(*["ip", "link", "set", "eth0", "up"])
            far = f"remote 10.9.0.{3 - number} dev eth0"
            space.run(*f"ip link add vx0 type vxlan id 7 dstport 4789 {far}".split())
            space.run(*f"ip address add 10.1.0.{number}/24 dev vx0".split())
            space.run(*f"ip address add fd01::{number}/64 dev vx0 nodad".split())
            space.run(*["ip", "link", "set", "vx0", "up"])
        yield a, b, cable


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Namespace, Namespace, Cable]]:
    with ends() as found:
        yield found


def target(version: int, port: int = PORT) -> Target:
    here, there = TUNNELS[version]
    return Target(ip_address(here), ip_address(there), port, "vx0")


def ask(
    space: Namespace, to: Target, timeout: float = HANG, complete: float = 0.0
) -> tuple[bool, bool]:
    """(as programs send, with the checksum), each within so many seconds."""

    async def both() -> tuple[bool, bool]:
        return await answered(to, timeout), await answered_complete(to, complete or timeout)

    return space.call(lambda: asyncio.run(both()))


@pytest.mark.parametrize("version", [4, 6])
def test_only_what_has_its_checksum_passes_a_cable_that_lies(
    world: tuple[Namespace, Namespace, Cable], version: int
) -> None:
    here, _, cable = world
    before = cable.lies
    assert ask(here, target(version), 3.5, HANG) == (False, True)
    assert cable.lies > before


@pytest.mark.parametrize("version", [4, 6])
def test_both_pass_an_honest_cable_refused_or_taken(
    world: tuple[Namespace, Namespace, Cable], version: int
) -> None:
    here, there, cable = world
    cable.honest = True
    try:
        assert ask(here, target(version)) == (True, True)
        listener = there.popen(
            "python3", "-c",
            "import socket,time\n"
            "s = socket.create_server(('::', 5000), family=socket.AF_INET6, dualstack_ipv6=True)\n"
            "print(flush=True); time.sleep(600)",
            stdout=-1,
        )  # fmt: skip
        try:
            assert listener.stdout is not None
            listener.stdout.readline()
            assert ask(here, target(version, 5000)) == (True, True)
        finally:
            listener.kill()
            listener.communicate()
    finally:
        cable.honest = False


def test_nobody_there_is_no_answer_and_an_address_that_is_not_ours_an_error(
    world: tuple[Namespace, Namespace, Cable],
) -> None:
    here, _, _ = world
    assert ask(here, replace(target(4), address=ip_address("10.1.0.99")), 1.5) == (False, False)
    for wrong in (
        replace(target(4), source=ip_address("10.1.0.50")),
        replace(target(4), device="none"),
    ):
        with pytest.raises(KernelError, match="open a socket on"):
            ask(here, wrong)


def left_out(number: int) -> tuple[bytes, bool]:
    """A SYN of this number with its note, as it goes to a card, and whether it is right as it is.

    The start of the checksum's part counts from the frame's; here the frame is the segment alone.
    """
    to = target(4)
    whole = segment(to, 40000, number)
    pseudo = to.source.packed + to.address.packed + struct.pack("!I", len(whole)) + b"\0\0\0\6"
    stands = struct.pack("!H", ~checksum(pseudo) & 0xFFFF)
    note = struct.pack("=BBHHHH", NEEDS_CHECKSUM, 0, 0, 0, 0, 16)
    assert len(note) == NOTE
    return note + whole[:16] + stands + whole[18:], stands == whole[16:18]


def test_a_lie_is_never_right_by_chance() -> None:
    """A card that leaves the checksum out is right once in 65,535 segments."""
    right = next(number for number in itertools.count() if left_out(number)[1])
    for number in (right, right + 1):
        data, is_right = left_out(number)
        told = as_a_lie(data)
        assert told[:NOTE] == bytes(NOTE)
        assert (told[NOTE:] == data[NOTE:]) is not is_right
        assert told[NOTE + 16 :][:2] != segment(target(4), 40000, number)[16:18]


@given(st.binary(min_size=2, max_size=64).filter(lambda data: len(data) % 2 == 0))
def test_a_sum_with_its_checksum_is_zero(data: bytes) -> None:
    assert checksum(data + checksum(data).to_bytes(2, "big")) == 0


@given(st.binary(max_size=40))
def test_what_is_no_answer_to_us_is_none(data: bytes) -> None:
    assert not answers(data, target(4), 40000, 1) or data[13] & 0x10


def test_an_answer_is_known_by_ports_number_and_flags() -> None:
    to = target(4)
    sent = segment(to, 40000, 0xFFFFFFFF)
    reply = bytearray(sent)
    reply[0:4] = sent[2:4] + sent[0:2]
    reply[8:12] = bytes(4)
    for flags, is_answer in ((0x14, True), (0x12, True), (0x10, False), (0x04, False)):
        reply[13] = flags
        assert answers(bytes(reply), to, 40000, 0xFFFFFFFF) is is_answer
    assert not answers(bytes(reply), to, 40001, 0xFFFFFFFF)
