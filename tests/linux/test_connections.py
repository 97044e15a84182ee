"""CON-1, CON-2: connections by the packet that began them, with counters, to their end."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux import nflog, sysctl
from linux.tracking import connections
from linux.tracking.connections import Connection, read_key
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

HERE, THERE, SERVICE = "10.65.0.1", "10.65.0.2", "10.96.0.1"
HERE6, THERE6, SERVICE6 = "fd65::1", "fd65::2", "fd96::1"


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("connections") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        for address in (f"{HERE}/32", f"{THERE}/32", f"{HERE6}/128", f"{THERE6}/128"):
            more = ("nodad",) if ":" in address else ()
            space.run("ip", "address", "add", address, "dev", "lo", *more)
        for service in (f"{SERVICE}/32", f"{SERVICE6}/128"):
            space.run("ip", "route", "add", service, "dev", "lo")
        for table, service, server in (
            ("ip", SERVICE, THERE), ("ip6", SERVICE6, f"[{THERE6}]"),
        ):  # fmt: skip
            hook = "type {} hook output priority {}"
            space.run("nft", f"add table {table} t")
            space.run("nft", f"add chain {table} t n {{ {hook.format('nat', -100)}; }}")
            space.run("nft", f"add chain {table} t f {{ {hook.format('filter', 0)}; }}")
            for way in ("tcp", "udp"):
                to = f"{table} daddr {service} {way} dport 53"
                space.run("nft", f"add rule {table} t n {to} dnat to {server}:5353")
            space.run("nft", f"add rule {table} t f ct state new log prefix hello group 1")
        sysctl.set("net/netfilter/nf_conntrack_acct", 1)
        yield space


def all_of() -> dict[bytes, Connection]:
    found = {}
    for messages in connections.slices():
        for body in messages:
            key = connections.key_in(body)
            assert key == connections._key_in_any(body), (
                "the short way finds what the long one does"
            )
            if key is not None:
                found[key[0]] = connections.connection_of(body, key)
    return found


def told(reader: nflog.Reader) -> bytes:
    assert select.select([reader.fileno()], [], [], HANG)[0]
    packet = connections.of_packet(reader.read()[0].payload)
    assert packet is not None
    return packet[0]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("aimed", ["service", "pod"])
def test_a_packet_finds_its_connection_also_through_translations(
    space: Namespace, family: int, aimed: str
) -> None:
    here, there, service = (HERE, THERE, SERVICE) if family == 4 else (HERE6, THERE6, SERVICE6)
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with (
        nflog.Reader([1]) as reader,
        socket.socket(kind, socket.SOCK_DGRAM) as server,
        socket.socket(kind, socket.SOCK_DGRAM) as client,
    ):
        server.bind((there, 5353))
        client.bind((here, 4321))
        to = (service, 53) if aimed == "service" else (there, 5353)
        client.sendto(b"x" * 100, to)
        server.settimeout(HANG)
        _, sender = server.recvfrom(2000)
        server.sendto(b"y" * 10, sender)
        key = told(reader)
        there_now = all_of()
    found = there_now[key]
    header = 28 if family == 4 else 48
    assert (found.packets, found.bytes) == (1, 100 + header)
    assert (found.packets_back, found.bytes_back) == (1, 10 + header)
    assert found.translated is (aimed == "service")
    assert (found.aimed, found.aimed_port) == (ip_address(to[0]).packed, to[1])
    read = read_key(key)
    assert (read.source, read.destination) == (ip_address(here).packed, ip_address(there).packed)
    assert (read.protocol, read.source_port, read.destination_port) == (17, 4321, 5353)


def test_an_ending_is_told_with_the_last_counts(space: Namespace) -> None:
    with (
        connections.Endings() as endings,
        nflog.Reader([1]) as reader,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        client.bind((HERE, 4321))
        for _ in range(3):
            client.sendto(b"x" * 100, (THERE, 5353))
        key = told(reader)
        assert key in all_of()
        space.run("conntrack", "-D", "-p", "udp", "--orig-port-src", "4321")
        assert select.select([endings.fileno()], [], [], HANG)[0]
        ended = {
            found[0]: connections.connection_of(body, found)
            for body in endings.read()
            if (found := connections.key_in(body)) is not None
        }
        assert ended[key].packets == 3
        assert endings.lost == 0
        assert key not in all_of()


def test_a_ping_is_known_by_its_identifier(space: Namespace) -> None:
    for address in (THERE, THERE6):
        with nflog.Reader([1]) as reader:
            space.run("ping", "-c", "2", "-i", "0.2", address)
            key = told(reader)
        found = all_of()[key]
        assert (found.packets, found.packets_back) == (2, 2)
        assert read_key(key).destination_port == 0
        assert not found.translated


def test_a_closed_connection_is_over(space: Namespace) -> None:
    with nflog.Reader([1]) as reader, socket.create_server((THERE, 5353)) as server:
        with socket.create_connection((THERE, 5353)) as client:
            key = told(reader)
            peer = server.accept()[0]
            assert not all_of()[key].over
            client.close()
            peer.close()
        wait_for(lambda: all_of()[key].over, "the kernel remembers it for two minutes")


def test_many_come_in_slices(space: Namespace) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((HERE, 0))
        for port in range(1000, 3000):
            client.sendto(b"", (THERE, port))
    sizes = [len(messages) for messages in connections.slices()]
    assert sum(sizes) >= 2000
    assert max(sizes) < 400, "each is read in a fraction of a millisecond"


def test_without_counting_there_are_no_counts(space: Namespace) -> None:
    sysctl.set("net/netfilter/nf_conntrack_acct", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"", (THERE, 7))
    assert [one.packets for one in all_of().values()] == [None]


@given(
    protocol=st.sampled_from([1, 6, 17, 132]),
    source=st.binary(min_size=4, max_size=4),
    destination=st.binary(min_size=4, max_size=4),
    ports=st.binary(min_size=4, max_size=4),
)
def test_a_key_reads_back(protocol: int, source: bytes, destination: bytes, ports: bytes) -> None:
    read = read_key(connections.key_of(protocol, source, destination, ports))
    assert (read.protocol, read.source, read.destination) == (protocol, source, destination)
    assert struct.pack("!HH", read.source_port, read.destination_port) == ports


@given(st.binary(max_size=90))
def test_any_bytes_are_a_packet_or_none(payload: bytes) -> None:
    for first in (b"", b"\x45", b"\x60"):
        found = connections.of_packet(first + payload)
        assert found is None or len(found[0]) in (13, 37)


@given(st.binary(max_size=200))
def test_any_message_is_a_connection_or_none(body: bytes) -> None:
    found = connections.key_in(body)
    assert found is None or connections.connection_of(body, found).key == found[0]
