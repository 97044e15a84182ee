"""SETS-6, SETS-7: what packets find in sets while these change, in both kinds of sets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, cast

import pytest

from felix.calc.policy_model import SetChange, SetKind
from felix.dataplane.rules import nftables
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.rules.removal_timing import RemovalTiming
from linux.errors import KernelError
from linux.ipset import IPSets
from tests.felix import in_kernel
from tests.felix.world import make_world
from tests.support.netns import network_namespace
from tests.support.patience import wait_for

FAMILIES = frozenset({4})
NETS = SetKind.NETS
BACKENDS = ("ipset", "nftables")


def opened(backend: str) -> Any:
    return IPSets() if backend == "ipset" else nftables.open_sets(FAMILIES)


class Watched:
    """The kernel's sets; `look` is called after each change."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.look: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        act = getattr(self.kernel, name)
        if name not in ("add", "delete", "swap"):
            return act

        def acting(*arguments: Any) -> None:
            act(*arguments)
            self.look()

        return acting

    def has(self, name: str, address: str) -> bool:
        members = self.kernel.members(name)
        return any(ip_address(address) in ip_network(each) for each in members)


@contextmanager
def watched(backend: str, size: int = 1000) -> Iterator[tuple[Sets, Watched]]:
    with network_namespace("sets") as space, space.entered():
        kernel = Watched(opened(backend))
        sets = Sets(FAMILIES, size, cast("Any", kernel))
        yield sets, kernel
        sets.close()


def run(sets: Sets) -> dict[str, str]:
    return asyncio.run(sets.commit())


def change(set_id: str, add: str = "", remove: str = "") -> SetChange:
    return SetChange(set_id, NETS, added=frozenset(add.split()), removed=frozenset(remove.split()))


EDITS = [
    ("10.0.0.0/24", "10.0.0.0/16"),
    ("10.0.0.0/16", "10.0.0.0/24"),
    ("10.0.0.0/8", "10.0.0.7"),
    ("10.0.0.7", "0.0.0.0/0"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("before", "after"), EDITS)
def test_what_a_wider_or_narrower_net_covers_is_covered_all_the_time(
    backend: str, before: str, after: str
) -> None:
    with watched(backend) as (sets, kernel):
        sets.want("s:web", NETS, {before})
        assert run(sets) == {}
        seen = list[bool]()
        kernel.look = lambda: seen.append(kernel.has("cali40s:web", "10.0.0.7"))
        sets.change(change("s:web", after, before))
        assert run(sets) == {}
        assert seen
        assert all(seen)
        assert kernel.has("cali40s:web", "10.1.0.1") is (
            ip_address("10.1.0.1") in ip_network(after)
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_what_goes_from_one_set_to_another_is_never_in_neither(backend: str, order: str) -> None:
    with watched(backend) as (sets, kernel):
        sets.want("s:a", NETS, {"10.0.0.7", "10.0.0.8"})
        sets.want("s:b", NETS, {"10.0.0.9"})
        assert run(sets) == {}
        seen = list[bool]()
        kernel.look = lambda: seen.append(
            any(kernel.has(f"cali40s:{name}", "10.0.0.7") for name in "ab")
        )
        for name in order:
            moved = {"a": change("s:a", remove="10.0.0.7"), "b": change("s:b", add="10.0.0.7")}
            sets.change(moved[name])
        assert run(sets) == {}
        assert seen == [True, True]
        assert kernel.kernel.members("cali40s:a") == {"10.0.0.8"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_old_goes_first_where_there_is_no_room_for_both(backend: str) -> None:
    with watched(backend, size=2) as (sets, kernel):
        sets.want("s:a", NETS, {"10.0.0.1", "10.0.0.2"})
        assert run(sets) == {}
        sets.change(change("s:a", "10.0.0.3", "10.0.0.1"))
        assert run(sets) == {}
        assert kernel.kernel.members("cali40s:a") == {"10.0.0.2", "10.0.0.3"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_set_that_is_too_large_exists_for_the_rules_that_name_it(backend: str) -> None:
    with watched(backend, size=1) as (sets, kernel):
        sets.want("masq-pools", NETS, {"10.0.0.0/16", "10.1.0.0/16"})
        assert "2 members, maxIpsetSize is 1" in run(sets)["cali40masq-pools"]
        assert kernel.kernel.members("cali40masq-pools") == set()
        sets.change(change("masq-pools", remove="10.0.0.0/16"))
        assert run(sets) == {}
        assert kernel.kernel.members("cali40masq-pools") == {"10.1.0.0/16"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("type_", "size"), [("hash:net", 1000), ("hash:net", 7), ("hash:ip", 1000)]
)
def test_a_set_that_somebody_made_meanwhile_ends_with_what_is_wanted(
    backend: str, type_: Any, size: int
) -> None:
    """As `ipset restore` of a saved file leaves it."""
    with watched(backend) as (sets, kernel):
        sets.want("s:a", NETS, {"10.0.0.1"})
        assert run(sets) == {}
        with opened(backend) as theirs:
            theirs.create("cali40s:b", type_, 4, size)
            theirs.add("cali40s:b", ["10.0.0.66"])
        sets.want("s:b", NETS, {"10.0.0.2"})
        assert run(sets) == {}
        assert kernel.kernel.members("cali40s:b") == {"10.0.0.2"}


class Busy:
    """A kernel that does not give a set free at once."""

    def __init__(self) -> None:
        self.kernel = IPSets()
        self.busy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def destroy(self, name: str) -> None:
        if self.busy:
            raise KernelError(errno.EBUSY, f"destroy {name}", "the set is in use by a rule")
        self.kernel.destroy(name)


class NoGarbage:
    garbage = False


def test_nobody_waits_for_a_set_to_be_free_that_is_wanted_again() -> None:
    with network_namespace("sets") as space, space.entered():
        kernel, now = Busy(), [0.0]
        sets, sweeping = Sets(FAMILIES, 1000, cast("Any", kernel)), RemovalTiming(lambda: now[0])

        def sweep() -> None:
            assert sweeping.sets(cast("Any", NoGarbage()), sets, served=False) == {}
            now[0] += 1.0

        sets.want("s:a", NETS, {"10.0.0.1"})
        run(sets)
        sets.unwant("s:a")
        run(sets)
        sweep()
        assert sweeping.wait is not None
        sets.want("s:a", NETS, {"10.0.0.1"})
        run(sets)
        sweep()
        assert sweeping.wait is None
        sets.close()


@pytest.mark.parametrize("backend", in_kernel.BACKENDS)
def test_a_set_of_pools_that_is_too_large_keeps_no_rule_from_standing(
    tmp_path: Path, backend: str
) -> None:
    with make_world(tmp_path) as world:
        world.environment |= {**in_kernel.mode(backend), "FELIX_MAXIPSETSIZE": "1"}
        world.etcd.start()
        world.write_cluster()
        more = {"cidr": "10.66.0.0/16", "ipipMode": "Never", "vxlanMode": "Never"}
        world.put("ippools", "more", "IPPool", more | {"natOutgoing": True})
        one = world.add_pod("one", "cali1one", "10.65.0.1")
        world.add_pod("two", "cali2two", "10.65.0.2")
        world.start_felix()
        wait_for(lambda: one.reaches("10.65.0.2", wait=0.3))
        wait_for(lambda: "maxIpsetSize is 1" in world.log())
