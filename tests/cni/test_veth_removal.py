"""UNP-1, UNP-2: host interfaces leave in groups, each removal ends as soon as its link has left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cni.veth.veth_removal import VethRemover
from linux.errors import KernelError
from tests.support.netns import Namespace, network_namespace


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("plugs") as made, made.entered():
        yield made


def cables(space: Namespace, marks: Sequence[tuple[str, str]]) -> None:
    lines = [
        f"link add {name} type veth peer name p{name}\nlink set {name} alias {mark}\n"
        for name, mark in marks
    ]
    space.run("ip", "-batch", "-", input="".join(lines))


def links_of(space: Namespace) -> set[str]:
    listed = space.run("ip", "-br", "link")
    return {line.split()[0].split("@")[0] for line in listed.splitlines()} - {"lo"}


class Threads:
    """Runs what the unplugger gives to threads, and counts."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.works: list[asyncio.Future[Any]] = []

    def start(self, function: Any, wanted: Sequence[Any], group: int) -> asyncio.Future[Any]:
        self.batches.append(len(wanted))
        loop = asyncio.get_running_loop()
        work: asyncio.Future[Any] = loop.run_in_executor(None, function, wanted, group)
        self.works.append(work)
        return work


async def removed(
    wanted: Sequence[tuple[str, str]],
) -> tuple[list[bool | BaseException], list[int]]:
    threads = Threads()
    veth_remover = VethRemover(threads.start)
    try:
        removals = (veth_remover.remove(name, mark) for name, mark in wanted)
        found = await asyncio.gather(*removals, return_exceptions=True)
        await asyncio.gather(*threads.works)
        return found, threads.batches
    finally:
        veth_remover.close()


def test_many_leave_in_few_batches_and_others_stay(space: Namespace) -> None:
    marks = [(f"c{number}", f"mark-{number}") for number in range(20)]
    cables(space, [*marks, ("foreign", "of-somebody-else")])
    wanted = [*marks, ("foreign", "mark-x"), ("missing", "mark-y")]
    found, batches = asyncio.run(removed(wanted))
    assert found == [True] * 20 + [False] * 2
    assert links_of(space) == {"foreign", "pforeign"}
    assert sum(batches) == 22
    assert len(batches) <= 2


def test_the_same_twice_is_removed_once(space: Namespace) -> None:
    cables(space, [("c0", "mark")])
    found, _ = asyncio.run(removed([("c0", "mark"), ("c0", "mark")]))
    assert found == [True, False]


@pytest.mark.parametrize("others", [0, 3])
def test_what_the_kernel_refuses_is_told_and_holds_up_nobody(space: Namespace, others: int) -> None:
    marks = [(f"c{number}", f"mark-{number}") for number in range(others)]
    if marks:
        cables(space, marks)
    space.run("ip", "link", "set", "lo", "alias", "mine")
    found, _ = asyncio.run(removed([("lo", "mine"), *marks]))
    assert isinstance(found[0], KernelError)
    assert found[1:] == [True] * others
    assert links_of(space) == set()


def test_one_who_goes_away_leaves_the_removal_alone(space: Namespace) -> None:
    cables(space, [("c0", "mark-0"), ("c1", "mark-1")])

    async def story() -> bool:
        threads = Threads()
        veth_remover = VethRemover(threads.start)
        try:
            first = asyncio.create_task(veth_remover.remove("c0", "mark-0"))
            await asyncio.sleep(0)
            first.cancel()
            found = await veth_remover.remove("c1", "mark-1")
            await asyncio.gather(*threads.works)
            return found
        finally:
            veth_remover.close()

    assert asyncio.run(story())
    assert links_of(space) == set()
