"""NL-1, NL-2: batches, errors as values with the kernel's own words, dumps."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, ip_network

import pytest

from linux import links, netlink, routes
from linux.errors import KernelError
from linux.netlink import wire
from linux.netlink.answers import split
from linux.routes import NextHop, Route
from tests.support.netns import Namespace, network_namespace


@pytest.fixture
def host() -> Iterator[Namespace]:
    with network_namespace("nl") as host, host.entered():
        yield host


def test_attributes_survive_the_way_there_and_back() -> None:
    data = wire.u32(3, 7) + wire.text(1, "eth0") + wire.nest(9, wire.u8(2, 5))
    found = wire.parse_attributes(data)
    assert wire.as_uint(found[3]) == 7
    assert wire.as_text(found[1]) == "eth0"
    assert wire.parse_attributes(found[9]) == {2: b"\x05"}
    assert len(data) % 4 == 0


def test_torn_data_ends_the_reading() -> None:
    data = wire.u32(3, 7)
    assert wire.parse_attributes(data + b"\xff\xff\x01\x00ab") == {3: data[4:]}
    assert wire.parse_attributes(b"\x02\x00\x01\x00") == {}
    whole = wire.message(18, 0, data)
    assert [kind for kind, *_ in split(whole + whole[:-2])] == [18]


def test_one_attribute_is_found_without_the_others() -> None:
    data = (
        wire.u32(3, 7) + wire.text(1, "eth0") + wire.text(1, "eth1") + wire.nest(9, wire.u8(2, 5))
    )
    assert wire.first_attribute(b"head" + data, 1, 4) == b"eth0\0"
    assert wire.first_attribute(data, 9) == wire.u8(2, 5)
    assert wire.first_attribute(data, 4) is None
    assert wire.first_attribute(data[:-2], 9) is None
    assert wire.first_attribute(b"\x02\x00\x01\x00", 1) is None


def test_an_attribute_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="65531"):
        wire.attribute(1, bytes(65532))


def test_the_first_failure_of_what_is_carried_out_is_told(host: Namespace) -> None:
    good = Route(ip_network("10.66.0.0/26"), type="blackhole")
    far = Route(ip_network("10.66.1.0/26"), (NextHop(IPv4Address("192.0.2.1"), 1),))
    with netlink.Socket() as sock:
        sock.carry_out([])
        sock.carry_out([routes.add(good)], "add a route")
        with pytest.raises(KernelError, match="add routes: Network is unreachable") as caught:
            sock.carry_out(
                [routes.delete(good), routes.add(far), routes.delete(good)], "add routes"
            )
        assert caught.value.errno == errno.ENETUNREACH
        assert "invalid gateway" in str(caught.value)
        assert [r.errno for r in sock.transact([routes.add(good)])] == [0], "all of it was tried"


def test_a_kernel_that_does_not_answer_is_not_waited_for() -> None:
    with netlink.Socket(timeout=0.05) as sock:
        start = time.monotonic()
        with pytest.raises(KernelError) as caught:
            sock._messages("answer")
        assert caught.value.errno == errno.ETIMEDOUT
        assert time.monotonic() - start >= 0.04
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.receive()


def test_each_message_of_a_batch_has_its_own_fate(host: Namespace) -> None:
    good = Route(ip_network("10.66.0.0/26"), type="blackhole")
    far = Route(ip_network("10.66.1.0/26"), (NextHop(IPv4Address("192.0.2.1"), 1),))
    with netlink.Socket() as sock:
        results = sock.transact(
            [routes.add(good), routes.add(far), routes.add(good), routes.delete(good)]
        )
        assert [r.errno for r in results] == [0, errno.ENETUNREACH, errno.EEXIST, 0]
        assert [r.index for r in results] == [0, 1, 2, 3]
        error = results[1].error("add route 10.66.1.0/26")
        assert "add route 10.66.1.0/26: Network is unreachable" in str(error)
        assert "invalid gateway" in str(error)
        with pytest.raises(KernelError, match="Unknown device type"):
            sock.request(links.create("x0", "no-such-kind"), "create link x0")


def test_of_many_only_the_failures_are_told(
    host: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_DATAGRAM", 1000)
    holes = [Route(dst, type="blackhole") for dst in ip_network("10.66.0.0/24").subnets(6)]
    far = Route(ip_network("10.67.0.0/26"), (NextHop(IPv4Address("192.0.2.1"), 1),))
    messages = [routes.add(route) for route in holes]
    messages[50] = messages[63] = routes.add(far)
    with netlink.Socket() as sock:
        failed = sock.transact_all(messages)
        assert {n: result.errno for n, result in failed.items()} == {
            50: errno.ENETUNREACH,
            63: errno.ENETUNREACH,
        }
        assert "invalid gateway" in str(failed[50].error("add route"))
        assert sock.transact_all([]) == {}
        # What is asked afterwards is answered as ever.
        assert sock.transact([routes.delete(holes[0])])[0].ok
        assert set(routes.dump(sock)) >= {*holes[1:50], *holes[51:63]}


def test_an_empty_batch_sends_nothing(host: Namespace) -> None:
    with netlink.Socket() as sock:
        assert sock.transact([]) == []


def test_a_thousand_routes_in_one_batch(host: Namespace) -> None:
    wanted = [
        Route(IPv4Network((0x0A800000 + 64 * n, 26)), type="blackhole", protocol=109, table=77)
        for n in range(1000)
    ]
    with netlink.Socket() as sock:
        start = time.perf_counter()
        results = sock.transact([routes.replace(route) for route in wanted])
        written = time.perf_counter()
        found = routes.dump(sock, table=77)
        read = time.perf_counter()
        assert all(result.ok for result in results)
        assert set(found) == set(wanted)
        print(f"1000 routes: write {written - start:.4f} s, dump {read - written:.4f} s")
        twice = sock.transact([routes.delete(route) for route in wanted + wanted])
        assert [r.errno for r in twice] == [0] * 1000 + [errno.ESRCH] * 1000
        assert routes.dump(sock, table=77) == []


def test_a_torn_dump_is_repeated(monkeypatch: pytest.MonkeyPatch, host: Namespace) -> None:
    with netlink.Socket() as sock:
        real = sock._messages
        torn = [True]

        def once_torn(what: str) -> list[tuple[int, int, int, bytes]]:
            found = real(what)
            if torn:
                torn.clear()
                return [
                    (kind, flags | wire.NLM_F_DUMP_INTR, sequence, body)
                    for kind, flags, sequence, body in found
                ]
            return found

        monkeypatch.setattr(sock, "_messages", once_torn)
        assert [link.name for link in links.dump(sock) if link.loopback] == ["lo"]
        assert not torn
