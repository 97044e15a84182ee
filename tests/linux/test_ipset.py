"""IPS-1: members come back as written, ten thousand at a time; ipset(8) sees the same sets."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Literal

import pytest

from linux.errors import KernelError
from linux.ipset import IPSets, SetType
from linux.ipset.members import DATA, be32, encode_entry, encode_member
from linux.netlink import wire as m
from tests.support.netns import Namespace, network_namespace

TYPES: list[SetType] = ["hash:net", "hash:ip", "hash:ip,port"]


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("set") as space, space.entered():
        yield space


def _member(type: SetType, family: int, number: int) -> str:
    base = 0x0A000000 if family == 4 else 0xFD << 120
    address = str(ip_address(base + number * 64))
    if type == "hash:net":
        return address + ("/26" if family == 4 else "/122")
    return address if type == "hash:ip" else f"{address},{('tcp', 'udp', 'sctp')[number % 3]}:80"


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("type", TYPES)
def test_ten_thousand_members(space: Namespace, type: SetType, family: Literal[4, 6]) -> None:
    members = [_member(type, family, number) for number in range(10_000)]
    with IPSets() as sets:
        sets.create("m-one", type, family)
        start = time.perf_counter()
        sets.add("m-one", members)
        added = time.perf_counter()
        assert sets.members("m-one") == set(members)
        print(
            f"{type} v{family}: add {added - start:.3f} s, list {time.perf_counter() - added:.3f}"
        )
        sets.add("m-one", members[:2])
        sets.delete("m-one", members[5:])
        sets.delete("m-one", members[5:7])
        assert sets.members("m-one") == set(members[:5])
        shown = space.run("ipset", "list", "m-one")
        assert f"Type: {type}" in shown
        assert set(shown.partition("Members:\n")[2].split()) == set(members[:5])
        info = sets.info("m-one")
        assert info is not None
        assert (info.type, info.family, info.maxelem) == (type, family, 1 << 20)


def test_ipset_8_members_read_the_same(space: Namespace) -> None:
    space.run("ipset", "create", "theirs", "hash:net")
    for text in ("10.0.0.0/8", "10.1.2.3", "192.0.2.0/31"):
        space.run("ipset", "add", "theirs", text)
    with IPSets() as sets:
        assert sets.names() == ["theirs"]
        assert sets.members("theirs") == {"10.0.0.0/8", "10.1.2.3", "192.0.2.0/31"}


def test_errors_say_which_set_and_why(space: Namespace) -> None:
    with IPSets() as sets:
        sets.create("m-one", "hash:ip", 4)
        sets.create("m-one", "hash:ip", 4)
        with pytest.raises(KernelError, match="create IP set m-one: File exists"):
            sets.create("m-one", "hash:net", 4)
        with pytest.raises(KernelError, match="add to IP set m-one"):
            sets.add("m-one", ["fd00::1"])
        with pytest.raises(KernelError) as caught:
            sets.add("none", ["10.0.0.1"])
        assert caught.value.errno == errno.ENOENT
        assert sets.info("none") is None
        with pytest.raises(ValueError, match="1 to 31 bytes"):
            sets.create("x" * 32, "hash:ip", 4)
        sets.create("m-small", "hash:ip", 4, maxelem=2)
        with pytest.raises(KernelError, match="full"):
            sets.add("m-small", ["10.0.0.1", "10.0.0.2", "10.0.0.3"])


def test_a_set_in_use_stays(space: Namespace) -> None:
    with IPSets() as sets:
        sets.create("m-one", "hash:ip", 4)
        match = ("-m", "set", "--match-set", "m-one", "src", "-j", "ACCEPT")
        space.run("iptables-nft", "-A", "INPUT", *match)
        with pytest.raises(KernelError, match="in use by a rule") as caught:
            sets.destroy("m-one")
        assert caught.value.errno == errno.EBUSY
        space.run("iptables-nft", "-D", "INPUT", *match)
        sets.destroy("m-one")
        sets.destroy("m-one")
        assert sets.names() == []


@pytest.mark.parametrize(
    "member",
    ["10.0.0.1", "10.0.0.0/8", "192.0.2.128/25", "0.0.0.0/1", "fd00::1", "fd00::/64",
     "10.0.0.7,tcp:80"],
)  # fmt: skip
@pytest.mark.parametrize("number", [1, 70000])
def test_the_short_way_of_spelling_members_is_the_long_one(member: str, number: int) -> None:
    long = m.nest(DATA, encode_member(member) + be32(9, number))
    assert encode_entry(member, number) == long


def test_contents_are_swapped_at_once(space: Namespace) -> None:
    with IPSets() as sets:
        sets.create("m-one", "hash:net", 4, maxelem=2)
        sets.create("m-two", "hash:net", 4, maxelem=64)
        sets.add("m-two", [f"10.0.0.{n}" for n in range(20)])
        space.run("iptables-nft", "-A", "INPUT", "-m", "set", "--match-set", "m-one", "src")
        sets.swap("m-two", "m-one")
        assert len(sets.members("m-one")) == 20
        assert sets.members("m-two") == set()
        sets.destroy("m-two")
        with pytest.raises(KernelError, match="swap IP sets m-one and none"):
            sets.swap("m-one", "none")
