"""eBPF without a library: programs that load, what they see, and what they refuse."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from linux import netns
from linux.ebpf import packets
from linux.ebpf.assembler import R0, R1, Program
from linux.ebpf.btf import Btf
from linux.ebpf.packets import DROPPED, RECEIVED, SENT, PacketWatch, Seen
from linux.errors import KernelError
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import wait_for

TCP, UDP = 6, 17


@pytest.fixture(scope="module")
def space() -> Iterator[Namespace]:
    """A namespace with a loopback."""
    with network_namespace("ebpf") as made:
        made.run("ip", "link", "set", "lo", "up")
        yield made


def seen_of(space: Namespace, address: str, port: int) -> list[Seen]:
    """What a watch sees of one connection to a closed port in a namespace."""
    target = ip_address(address)
    inode = space.path.stat().st_ino
    with PacketWatch([target], TCP) as watch:
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        with inside(space, family, socket.SOCK_STREAM) as client:
            client.connect_ex((address, port))
        found: list[Seen] = []

        def ended() -> bool:
            found.extend(each for each in watch.read() if each.netns == inode)
            return any(each.kind == DROPPED for each in found)

        wait_for(ended, "the drop is seen")
        assert watch.lost == 0
        return found


def inside(space: Namespace, family: int, kind: int) -> socket.socket:
    """A socket of the namespace."""
    return netns.run_in(space.fd, lambda: socket.socket(family, kind))


@pytest.mark.parametrize("address", ["127.0.0.44", "::1"])
def test_a_refused_connection_is_seen_at_each_place(space: Namespace, address: str) -> None:
    found = seen_of(space, address, 7)
    # The device has it before the stack, which drops it for want of a socket.
    kinds = [each.kind for each in found]
    assert kinds.index(SENT) < kinds.index(RECEIVED) < kinds.index(DROPPED)
    drop = next(each for each in found if each.kind == DROPPED)
    assert packets.reason_name(drop.reason) == "NO_SOCKET"
    assert packets.symbol(drop.location).startswith("tcp_v")
    assert found == sorted(found, key=lambda each: each.time)
    place = 12 if ":" not in address else 8
    size = len(ip_address(address).packed)
    destination = found[0].packet[place + size : place + 2 * size]
    assert destination == ip_address(address).packed


def test_other_protocols_and_addresses_are_not_seen(space: Namespace) -> None:
    with PacketWatch([ip_address("127.0.0.45")], UDP) as watch:
        with inside(space, socket.AF_INET, socket.SOCK_STREAM) as other:
            other.connect_ex(("127.0.0.45", 7))
        with inside(space, socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"x", ("127.0.0.46", 7))
            other.sendto(b"x", ("127.0.0.45", 7))
        found: list[Seen] = []

        def seen() -> list[Seen]:
            found.extend(watch.read())
            return found

        wait_for(seen, "the datagram is seen")
        assert {each.packet[9] for each in found} <= {UDP, 1}
        assert all(ip_address("127.0.0.45").packed in each.packet[:40] for each in found)


def test_what_does_not_fit_is_counted(space: Namespace) -> None:
    with PacketWatch([ip_address("127.0.0.47")], UDP) as watch:
        with inside(space, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(packets.RING // packets.COPY):
                try:
                    sender.sendto(b"x", ("127.0.0.47", 7))
                except ConnectionRefusedError:
                    continue
        assert watch.lost > 0
        assert sum(1 for _ in watch.read()) > 1000


def test_a_watch_wants_addresses_of_one_family() -> None:
    for addresses in ([], [ip_address("10.0.0.1"), ip_address("fd00::1")]):
        with pytest.raises(ValueError, match="want 1 to 16 of one family"):
            PacketWatch(addresses, TCP)


def test_a_closed_watch_is_closed_twice() -> None:
    watch = PacketWatch([ip_address("127.0.0.48")], TCP)
    watch.close()
    watch.close()


def test_this_kernel_has_what_is_needed() -> None:
    assert packets.available() == ""


def test_btf_says_what_the_kernel_has() -> None:
    btf = Btf()
    assert btf.offset("iphdr", "saddr") == 12
    assert btf.offset("iphdr", "daddr") == 16
    assert btf.offset("sk_buff", "head") != btf.offset("sk_buff", "data")
    reasons = btf.numbers("skb_drop_reason")
    assert "SKB_DROP_REASON_NO_SOCKET" in reasons.values()
    with pytest.raises(KernelError, match="no_such_thing"):
        btf.offset("no_such_thing", "x")
    with pytest.raises(KernelError, match=r"iphdr\.nothing"):
        btf.offset("iphdr", "nothing")


def test_a_kernel_without_btf_is_told(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="the kernel has no BTF"):
        Btf(tmp_path / "vmlinux")
    bad = tmp_path / "bad"
    bad.write_bytes(b"no BTF at all, but long enough")
    with pytest.raises(KernelError, match="no BTF of this byte order"):
        Btf(bad)


def test_a_jump_goes_to_its_label() -> None:
    p = Program()
    p.jump_if(R1, 0x80000001, "end")
    p.set(R0, 1)
    p.label("end")
    p.exit()
    op, _, off, imm = struct.unpack_from("<BBhi", p.code())
    assert (op, off, imm) == (0x16, 1, -0x7FFFFFFF)


def test_a_label_that_lies_behind_is_refused() -> None:
    p = Program()
    p.label("begin")
    p.set(R0, 0)
    p.jump("begin")
    with pytest.raises(ValueError, match="'begin'"):
        p.code()


def test_a_program_that_the_kernel_refuses_says_why() -> None:
    from linux.ebpf import calls

    p = Program()
    p.exit()
    with pytest.raises(KernelError, match="R0 !read_ok"):
        calls.load(p.code(), "broken")
