"""NFS-1, NFS-2: named sets of a table hold what they are told, by any hand and after a restart."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Literal

import pytest

from linux.errors import KernelError
from linux.nftables import NamedSets
from linux.nftables.expressions import Family
from tests.support.netns import Namespace, network_namespace

PREFIXES: dict[Family, str] = {4: "cali4", 6: "cali6"}


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nfs") as space, space.entered():
        yield space


@pytest.fixture
def sets(space: Namespace) -> Iterator[NamedSets]:
    with NamedSets(PREFIXES, "mine") as sets:
        yield sets


MEMBERS: list[tuple[Literal["hash:net", "hash:ip", "hash:ip,port"], Family, set[str]]] = [
    ("hash:net", 4, {"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "192.0.2.0/25", "192.0.2.128/25"}),
    ("hash:net", 4, {"0.0.0.0/0", "10.0.0.1", "255.255.255.255"}),
    ("hash:net", 6, {"fd00::/64", "fd00::1", "2001:db8::/32", "ffff::/16"}),
    ("hash:ip", 4, {"10.0.0.1", "10.0.0.2"}),
    ("hash:ip", 6, {"fd00::1"}),
    ("hash:ip,port", 4, {"10.0.0.1,tcp:80", "10.0.0.1,udp:53", "10.0.0.2,sctp:1", "1.1.1.1,99:9"}),
    ("hash:ip,port", 6, {"fd00::1,tcp:65535", "fd00::1,icmpv6:0"}),
]


@pytest.mark.parametrize(("type", "family", "members"), MEMBERS)
def test_members_come_back_as_written(
    space: Namespace,
    sets: NamedSets,
    type: Literal["hash:net", "hash:ip", "hash:ip,port"],
    family: Family,
    members: set[str],
) -> None:
    name = f"cali{family}0one"
    sets.create(name, type, family)
    sets.create(name, type, family)
    sets.add(name, members)
    assert sets.members(name) == members
    sets.add(name, members)
    assert sets.members(name) == members
    assert sets.names() == [name]
    info = sets.info(name)
    assert info is not None
    assert (info.type, info.family, info.maxelem) == (type, family, 0)
    # Another process knows no member that lies in another one: those add nothing.
    with NamedSets(PREFIXES, "mine") as other:
        assert other.members(name) <= members
        other.add(name, members)
        assert other.members(name) == members
    sets.delete(name, members)
    assert sets.members(name) == set()
    sets.destroy(name)
    sets.destroy(name)
    assert sets.names() == []


def test_ten_thousand_networks_and_one_over_them(space: Namespace, sets: NamedSets) -> None:
    members = {f"10.{n >> 8}.{n & 255}.0/28" for n in range(10_000)}
    sets.create("cali40many", "hash:net", 4)
    sets.add("cali40many", members)
    assert sets.members("cali40many") == members
    sets.add("cali40many", ["10.0.0.0/8"])
    listed = space.run("nft", "list", "set", "ip", "mine", "cali40many")
    assert "elements = { 10.0.0.0/8 }" in listed
    assert sets.members("cali40many") == members | {"10.0.0.0/8"}
    sets.delete("cali40many", ["10.0.0.0/8"])
    assert sets.members("cali40many") == members


def test_what_somebody_changed_is_seen(space: Namespace, sets: NamedSets) -> None:
    sets.create("cali40one", "hash:net", 4)
    sets.add("cali40one", {"10.0.0.0/24", "10.0.0.7", "10.2.0.0/16"})
    nft = ("nft", "delete", "element", "ip", "mine", "cali40one")
    space.run(*nft, "{ 10.0.0.0/24 }")
    space.run("nft", "add", "element", "ip", "mine", "cali40one", "{ 10.9.0.1-10.9.0.5 }")
    assert sets.members("cali40one") == {"10.2.0.0/16", "10.9.0.1-10.9.0.5"}
    sets.delete("cali40one", {"10.9.0.1-10.9.0.5"})
    assert sets.members("cali40one") == {"10.2.0.0/16"}


def test_a_set_of_another_type_is_told_apart_and_goes(space: Namespace, sets: NamedSets) -> None:
    space.run("nft", "add", "table", "ip", "mine")
    space.run("nft", "add", "set", "ip", "mine", "cali40odd", "{ type mark; }")
    space.run("nft", "add", "set", "ip", "mine", "theirs", "{ type ipv4_addr; }")
    assert sets.names() == ["cali40odd"]
    info = sets.info("cali40odd")
    assert info is not None
    assert info.type not in ("hash:net", "hash:ip", "hash:ip,port")
    assert sets.members("cali40odd") == set()
    sets.destroy("cali40odd")
    assert sets.names() == []


def test_a_refused_change_leaves_all_as_it_was(space: Namespace, sets: NamedSets) -> None:
    sets.create("cali40one", "hash:net", 4)
    sets.add("cali40one", {"10.0.0.1"})
    with pytest.raises(KernelError, match=r"cali40one.*'nonsense' is no network of IPv4"):
        sets.add("cali40one", {"10.0.0.2", "nonsense"})
    with pytest.raises(KernelError) as caught:
        sets.add("cali40gone", {"10.0.0.2"})
    assert caught.value.errno == errno.ENOENT
    assert sets.members("cali40one") == {"10.0.0.1"}


def test_a_set_that_a_rule_names_cannot_go(space: Namespace, sets: NamedSets) -> None:
    sets.create("cali40one", "hash:net", 4)
    space.run("nft", "add", "chain", "ip", "mine", "c")
    space.run("nft", "add", "rule", "ip", "mine", "c", "ip", "saddr", "@cali40one")
    with pytest.raises(KernelError) as caught:
        sets.destroy("cali40one")
    assert caught.value.errno == errno.EBUSY


def test_names_are_translated_both_ways(space: Namespace) -> None:
    naming = (lambda name: name.replace(":", "-"), lambda name: name.replace("-", ":"))
    with NamedSets(PREFIXES, "mine", naming) as sets:
        sets.create("cali40s:x", "hash:net", 4)
        sets.add("cali40s:x", {"10.0.0.1"})
        assert sets.names() == ["cali40s:x"]
        with sets.another() as other:
            assert other.members("cali40s:x") == {"10.0.0.1"}
    assert "10.0.0.1" in space.run("nft", "list", "set", "ip", "mine", "cali40s-x")


def test_what_another_thread_reads_is_known_to_all(space: Namespace, sets: NamedSets) -> None:
    """Else a member that somebody took away would be thought to be there for ever."""
    sets.create("cali40one", "hash:net", 4)
    sets.add("cali40one", {"10.0.0.1", "10.0.0.2"})
    space.run("nft", "delete", "element", "ip", "mine", "cali40one", "{ 10.0.0.1 }")
    with sets.another() as other:
        assert other.members("cali40one") == {"10.0.0.2"}
    sets.add("cali40one", {"10.0.0.1"})
    assert sets.members("cali40one") == {"10.0.0.1", "10.0.0.2"}
    with NamedSets(PREFIXES, "mine") as fresh:
        info = fresh.info("cali40one")
        assert info is not None
        assert info.entries >= 2, "counted by the kernel, or feared to be many"
