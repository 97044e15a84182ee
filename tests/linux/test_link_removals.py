"""DEP-1: a link's end is heard of, and before the kernel answers the one who removed it."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Iterator

import pytest

from linux import links, netns
from linux.link_removals import LinkRemovals
from linux.netlink import open_in_netns
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient

TRIES = 200


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("depart") as made:
        yield made


async def heard(
    space: Namespace, names: list[str], first: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, float], float]:
    ended: list[links.Link | None] = []
    at: dict[str, float] = {}
    complete = asyncio.Event()

    def left(link: links.Link | None) -> None:
        ended.append(link)
        if link is not None:
            at.setdefault(link.name, time.perf_counter())
        if at.keys() >= set(names):
            complete.set()

    departures = netns.run_in(space.fd, lambda: LinkRemovals(left))
    with departures, open_in_netns(space.fd) as remover:
        answered = 0.0
        if first:
            space.run(*first)

        def remove() -> None:
            nonlocal answered
            remover.transact([links.delete(name) for name in names])
            answered = time.perf_counter()

        work = asyncio.get_running_loop().run_in_executor(None, remove)
        async with asyncio.timeout(patient(20)):
            await complete.wait()
        await work
    return [link.name for link in ended if link], at, answered


def test_each_link_that_ends_is_told(space: Namespace) -> None:
    space.run("ip", "-batch", "-", input="link add d0 type bridge\nlink add d1 type bridge\n")
    names, _, _ = asyncio.run(heard(space, ["d0", "d1"]))
    assert names == ["d0", "d1"]


def test_a_veth_is_told_before_the_kernel_has_tidied_up(space: Namespace) -> None:
    """Which of two threads is first is the machine's matter; told after, it never were first."""
    for _ in range(TRIES):
        space.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        names, at, answered = asyncio.run(heard(space, ["v0"]))
        assert sorted(names) == ["v0", "v1"]
        if at["v0"] < answered:
            return
    pytest.fail(f"never told before the kernel was done, in {TRIES} tries")


def test_a_port_that_leaves_its_bridge_stays(space: Namespace) -> None:
    lines = (
        "link add br0 type bridge",
        "link add d0 type veth peer name d2",
        "link add d1 type bridge",
        "link set d0 master br0",
    )
    space.run("ip", "-batch", "-", input="\n".join((*lines, "")))
    names, _, _ = asyncio.run(heard(space, ["d1"], ("ip", "link", "set", "d0", "nomaster")))
    assert names == ["d1"]


def test_a_socket_that_fails_loses_no_end_that_it_gave(space: Namespace) -> None:
    space.run("ip", "link", "add", "d0", "type", "bridge")

    async def reported() -> tuple[list[str | None], object]:
        ended: list[str | None] = []
        failed = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failed.set_result(context["exception"])
        )
        with netns.run_in(
            space.fd, lambda: LinkRemovals(lambda link: ended.append(link.name if link else None))
        ) as departures:
            receive, failures = departures._socket.receive, iter((None, errno.EIO))

            def broken() -> bytes:
                if number := next(failures):
                    raise OSError(number, "the socket is broken")
                return receive()

            departures._socket.receive = broken  # type: ignore[method-assign]
            space.run("ip", "link", "delete", "d0")
            async with asyncio.timeout(patient(20)):
                error = await failed
            assert departures._socket.fileno() == -1, "closed"
        return ended, error

    ended, error = asyncio.run(reported())
    assert ended == ["d0", None]
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
