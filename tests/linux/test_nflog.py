"""NFL-1: packets that rules tell of arrive with prefix, interfaces and headers."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from linux import nflog
from linux.errors import KernelError
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG

HERE, THERE = "10.65.0.1", "10.65.0.2"
HERE6, THERE6 = "fd65::1", "fd65::2"


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nflog") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        for address in (f"{HERE}/32", f"{THERE}/32", f"{HERE6}/128", f"{THERE6}/128"):
            more = ("nodad",) if ":" in address else ()
            space.run("ip", "address", "add", address, "dev", "lo", *more)
        yield space


def wait(reader: nflog.Reader, count: int) -> list[nflog.Logged]:
    found: list[nflog.Logged] = []
    while len(found) < count:
        assert select.select([reader.fileno()], [], [], HANG)[0], f"{len(found)} of {count} arrived"
        found += reader.read()
    return found


def tell(space: Namespace, backend: str, family: int, group: int, *match: str) -> None:
    if backend == "nft":
        table = ("ip", "ip6")[family == 6]
        space.run("nft", f"add table {table} t")
        space.run("nft", f"add chain {table} t out {{ type filter hook output priority 0; }}")
        space.run(
            "nft",
            f'add rule {table} t out udp dport 9 log prefix "DPE3|np/a/b" group {group} snaplen 80',
        )
        return
    program = f"{'ip6tables' if family == 6 else 'iptables'}-{backend}"
    space.run(
        program, "-A", "OUTPUT", "-p", "udp", "--dport", "9", *match, "-j", "NFLOG",
        "--nflog-group", str(group), "--nflog-prefix", "DPE3|np/a/b", "--nflog-size", "80",
    )  # fmt: skip


def send(source: str, destination: str, count: int = 1) -> None:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 4321))
        for _ in range(count):
            sender.sendto(b"x" * 200, (destination, 9))


@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy", "nft"])
@pytest.mark.parametrize("family", [4, 6])
def test_a_packet_arrives_with_all_that_is_known(
    space: Namespace, backend: str, family: int
) -> None:
    here, there = (HERE, THERE) if family == 4 else (HERE6, THERE6)
    tell(space, backend.removeprefix("iptables-"), family, 2)
    with nflog.Reader([1, 2]) as reader:
        send(here, there)
        told, messages = nflog.RECEIVED.packets[2], nflog.RECEIVED.messages
        (packet,) = wait(reader, 1)
    assert (nflog.RECEIVED.packets[2], nflog.RECEIVED.messages) == (told + 1, messages + 1)
    assert packet.group == 2
    assert packet.prefix == "DPE3|np/a/b"
    assert (packet.in_interface, packet.out_interface) == (0, socket.if_nametoindex("lo"))
    assert packet.head == nflog.Head(ip_address(here), ip_address(there), 17, 4321, 9)
    assert reader.lost == 0


def test_none_is_lost_in_a_burst(space: Namespace) -> None:
    tell(space, "nft", 4, 1)
    with nflog.Reader([1]) as reader:
        send(HERE, THERE, 500)
        assert len(wait(reader, 500)) == 500
        assert reader.read() == []


def test_what_the_kernel_could_not_deliver_is_counted_to_the_packet(space: Namespace) -> None:
    tell(space, "nft", 4, 1)
    with nflog.Reader([1]) as reader:
        reader.set_buffer(16_384)
        send(HERE, THERE, 3000)
        came = 0
        while select.select([reader.fileno()], [], [], 0.5)[0]:
            came += len(reader.read())
        assert came < 3000, "the buffer is small"
        # The gap shows with the next packet.
        send(HERE, THERE)
        came += len(wait(reader, 1))
        assert came + reader.lost == 3001


def test_a_group_has_one_reader_and_is_free_after_it(space: Namespace) -> None:
    with nflog.Reader([1]), pytest.raises(KernelError, match="NFLOG group 1"):
        nflog.Reader([1])
    with nflog.Reader([1]):
        pass


def test_without_privilege_it_is_refused(space: Namespace) -> None:
    code = (
        "import os; os.setuid(65534)\n"
        "from linux import nflog\n"
        "try: nflog.Reader([1])\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "NFLOG group 1: Operation not permitted (EPERM)\n", done.stderr


def test_headers_behind_extensions_and_of_fragments() -> None:
    addresses = ip_address(HERE6).packed + ip_address(THERE6).packed
    udp = struct.pack("!HHHH", 1, 2, 8, 0)
    hop = bytes([17, 0]) + bytes(6)
    base = b"\x60" + bytes(5)
    whole = base + bytes([0, 64]) + addresses + hop + udp
    found = nflog.head(whole)
    assert found is not None
    assert (found.protocol, found.source_port, found.destination_port) == (17, 1, 2)
    later = struct.pack("!BBHI", 17, 0, 8, 1)
    piece = nflog.head(base + bytes([44, 64]) + addresses + later + udp)
    assert piece is not None
    assert (piece.protocol, piece.destination_port) == (17, 0)
    v4 = bytearray(20)
    v4[0], v4[9], v4[6:8] = 0x45, 6, struct.pack("!H", 5)
    fragment = nflog.head(bytes(v4) + udp)
    assert fragment is not None
    assert fragment.destination_port == 0
    ping = bytearray(20)
    ping[0], ping[9] = 0x45, 1
    icmp = nflog.head(bytes(ping) + bytes([8, 3]))
    assert icmp is not None
    assert (icmp.icmp_type, icmp.icmp_code) == (8, 3)
    for broken in (b"", b"\x45" * 10, b"\x60" * 39, b"\x10" * 60):
        assert nflog.head(broken) is None
