"""CT-1 to CT-4: flows from and to an address are forgotten, all others stay."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import NoReturn

import pytest

from linux import conntrack
from linux.errors import KernelError
from linux.netlink import NETLINK_NETFILTER, Socket
from linux.netlink.answers import Result
from linux.rtnl import IPAddress
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, patient

A, B, C = "10.65.0.1", "10.65.0.2", "10.65.0.3"
A6, B6 = "fd65::1", "fd65::2"
FLOWS = {(A, B), (B, C), (C, A), (C, C), (A6, B6), (B6, B6)}


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("ct") as space, space.entered():
        for program in ("iptables-nft", "ip6tables-nft"):
            space.run(program, "-A", "INPUT", "-m", "conntrack", "--ctstate", "NEW")
        # A flow without an answer is forgotten after 30 s, whoever else has the processor.
        space.run("sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=3600")
        for address in (A, B, C):
            space.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        for address in (A6, B6):
            space.run("ip", "address", "add", f"{address}/128", "dev", "lo", "nodad")
        deadline = time.monotonic() + patient(20)
        # The kernel may be late with its table or lose a packet; a flow that is there stays one.
        while missing := FLOWS - _flows(space):
            assert time.monotonic() < deadline, f"no flows {missing}"
            for source, target in missing:
                _send(source, target)
        yield space


def _send(source: str, target: str) -> None:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 0))
        sender.sendto(b"x", (target, 9))


def _flows(space: Namespace) -> set[tuple[str, str]]:
    found = set()
    for family in ("ipv4", "ipv6"):
        for line in space.run("conntrack", "-L", "-f", family, "-p", "udp").splitlines():
            words = dict(word.split("=", 1) for word in reversed(line.split()) if "=" in word)
            found.add((words["src"], words["dst"]))
    return found


@pytest.mark.parametrize("many", [conntrack.MANY, 1], ids=["few addresses", "many"])
def test_flows_of_an_address_are_deleted(
    space: Namespace, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conntrack, "MANY", many)
    assert len(_flows(space)) == 6
    gone = [ip_address(A), ip_address(A6), ip_address("10.65.0.99")]
    asyncio.run(conntrack.delete_by_address(gone))
    assert _flows(space) == {(B, C), (C, C), (B6, B6)}
    asyncio.run(conntrack.delete_by_address([]))
    assert len(_flows(space)) == 3


def test_the_only_flow_of_a_node_is_deleted(space: Namespace) -> None:
    others = [ip_address(address) for address in (A, A6, B6)]
    asyncio.run(conntrack.delete_by_address([*others, ip_address(B)]))
    assert _flows(space) == {(C, C)}
    # Nothing else is tracked, so the kernel counts one flow.
    space.run("conntrack", "-D", "-p", "icmpv6", check=False)
    asyncio.run(conntrack.delete_by_address([ip_address(C)]))
    assert _flows(space) == set()


def test_those_who_ask_at_once_share_the_walks(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    real = conntrack._delete

    def walk(wanted: list[IPAddress]) -> None:
        walks.append(wanted)
        time.sleep(0.1)
        real(wanted)

    monkeypatch.setattr(conntrack, "_delete", walk)

    async def story() -> None:
        forgetter = conntrack.Forgetter()
        many = [forgetter.forget([ip_address(f"10.65.9.{n}")]) for n in range(50)]
        first = asyncio.ensure_future(forgetter.forget([ip_address(A)]))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *many, forgetter.forget([ip_address(A6)]))
        await forgetter.forget([])

    asyncio.run(story())
    assert 2 <= len(walks) <= 3, walks
    assert sum(map(len, walks)) == 52
    assert _flows(space) == {(B, C), (C, C), (B6, B6)}


def test_a_failed_walk_is_told_to_those_who_shared_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks: list[list[IPAddress]] = []
    began, goes_on = threading.Event(), threading.Event()

    def walk(wanted: list[IPAddress]) -> None:
        walks.append(wanted)
        began.set()
        assert goes_on.wait(HANG)
        if len(walks) == 1:
            raise KernelError(errno.EBUSY, "delete connections")

    monkeypatch.setattr(conntrack, "_delete", walk)

    async def story() -> list[object]:
        forgetter = conntrack.Forgetter()

        def asked(address: str) -> asyncio.Task[None]:
            return asyncio.create_task(forgetter.forget([ip_address(address)]))

        first = [asked(A), asked(B), asked(A6)]
        assert await asyncio.to_thread(began.wait, HANG)
        first[2].cancel()
        later = asked(C)
        await asyncio.sleep(0)
        goes_on.set()
        return await asyncio.gather(*first, later, return_exceptions=True)

    told = asyncio.run(story())
    assert [type(each) for each in told] == [
        KernelError,
        KernelError,
        asyncio.CancelledError,
        type(None),
    ]
    assert [len(walk) for walk in walks] == [3, 1]


def test_where_no_thread_can_be_started_the_callers_learn_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conntrack, "_delete", lambda wanted: None)

    async def story() -> None:
        forgetter = conntrack.Forgetter()
        loop = asyncio.get_running_loop()

        def refuse(*work: object) -> NoReturn:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as without:
            without.setattr(loop, "run_in_executor", refuse)
            with pytest.raises(RuntimeError, match="thread"):
                await asyncio.wait_for(forgetter.forget([ip_address(A)]), HANG)
        await asyncio.wait_for(forgetter.forget([ip_address(A)]), HANG)

    asyncio.run(story())


def test_listing_does_the_same(space: Namespace) -> None:
    with Socket(family=NETLINK_NETFILTER) as sock:
        four = [ip_address(A), ip_address("10.65.0.99")]
        conntrack._delete_listed(sock, socket.AF_INET, four, [])
        conntrack._delete_listed(sock, socket.AF_INET6, [ip_address(A6)], [])
    assert _flows(space) == {(B, C), (C, C), (B6, B6)}


@pytest.mark.parametrize("many", [conntrack.MANY, 1], ids=["few addresses", "many"])
def test_a_refused_delete_keeps_no_other_from_being_done(
    space: Namespace, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CT-4."""
    monkeypatch.setattr(conntrack, "MANY", many)
    spoiled: list[bytes] = []
    real = Socket.transact

    def transact(sock: Socket, messages: Sequence[bytes]) -> list[Result]:
        results = real(sock, messages)
        for index, message in enumerate(messages):
            if ip_address(A).packed in message and not spoiled:
                spoiled.append(message)
                results[index] = replace(results[index], errno=errno.EBUSY)
        return results

    monkeypatch.setattr(Socket, "transact", transact)
    with pytest.raises(KernelError, match=A):
        asyncio.run(conntrack.delete_by_address(map(ip_address, (A, B, A6))))
    assert spoiled
    assert _flows(space) == {(C, C), (B6, B6)}


def test_without_its_filter_the_request_deletes_nothing(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a kernel that does not know the filter attribute would see.
    monkeypatch.setattr(conntrack, "_FILTER", 2000)
    with Socket(family=NETLINK_NETFILTER) as sock:
        for reply in (False, True):
            result = sock.transact([conntrack._filtered(ip_address(A), reply)])[0]
            assert result.errno in conntrack._UNSUPPORTED
    assert len(_flows(space)) == 6
