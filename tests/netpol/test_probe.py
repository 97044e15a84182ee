"""The measuring tool itself: right packets, right answers, and what the kernel makes of SCTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.netpol import pods, sctp
from tests.netpol.pods import Prober
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

ADDRESSES = {"x/a": "10.98.0.1", "x/b": "10.98.0.2"}
DOORS = ("tcp:80", "udp:81", "sctp:80")
MANY = 100
"""Tries: who is to answer may stand still for a while."""


def test_checksum_has_the_published_values() -> None:
    assert sctp.crc32c(b"123456789") == 0xE3069283
    assert sctp.crc32c(bytes(32)) == 0x8A9136AA
    assert sctp.crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("cookie", [b"", b"x/a", b"abcd"])
def test_a_packet_survives_the_way(cookie: bytes) -> None:
    packet = sctp.Packet(20000, 80, 7, sctp.INIT_ACK, 0xDEADBEEF, cookie)
    data = sctp.pack(packet)
    assert len(data) % 4 == 0
    assert sctp.unpack(data) == packet


def test_damaged_packets_are_no_packets() -> None:
    data = sctp.pack(sctp.Packet(20000, 80, 0, sctp.INIT, 1))
    assert all(sctp.unpack(data[:size]) is None for size in range(len(data)))
    for place in range(len(data)):
        broken = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert sctp.unpack(broken) is None


@dataclass
class Couple:
    """Two pods on one cable; rules go into the second one's INPUT."""

    probers: list[Prober]
    client: Namespace
    server: Namespace

    def ask(self, door: str) -> str:
        """What the first pod hears from the second, of as many tries as it takes.

        On a busy machine a packet may be lost, and the kernel sends few refusals at a time.
        """
        tries = {("x/a", "x/b"): MANY}
        return pods.observe(self.probers, door, tries, HANG / MANY)["x/a", "x/b"]

    def ask_once(self, door: str, within: float) -> str:
        """The same of one try, within so many seconds."""
        return pods.observe(self.probers, door, timeout=within)["x/a", "x/b"]

    def rules(self, *lines: str) -> None:
        """Replace the server's filter table."""
        text = "\n".join(["*filter", ":INPUT ACCEPT", *lines, "COMMIT", ""])
        self.server.run("iptables-nft-restore", input=text)

    def packets(self) -> list[int]:
        """Packets counted by each rule of INPUT."""
        listed = self.server.run("iptables-nft", "-vnxL", "INPUT").splitlines()[2:]
        return [int(line.split()[0]) for line in listed]


@pytest.fixture
def couple() -> Iterator[Couple]:
    """Two namespaces with a veth pair and the probe process in each."""
    with network_namespace("pa") as a, network_namespace("pb") as b:
        a.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.name)
        for space, address in zip((a, b), ADDRESSES.values(), strict=True):
            space.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
        probers = [
            pods.start(space.command(*pods.COMMAND, name, *pods.SERVED), os.environ, name, address)
            for space, (name, address) in zip((a, b), ADDRESSES.items(), strict=True)
        ]
        try:
            pods.ready(probers)
            yield Couple(probers, a, b)
        finally:
            for prober in probers:
                prober.end()


@pytest.mark.parametrize("door", DOORS)
def test_open_closed_and_refused_are_told_apart(couple: Couple, door: str) -> None:
    protocol, _, port = door.partition(":")
    assert couple.ask(door) == "ok x/b"
    couple.rules(f"-A INPUT -p {protocol} --dport {port} -j DROP")
    assert couple.ask_once(door, 0.3) == "silent"
    other = "81" if port == "80" else "80"
    assert couple.ask(f"{protocol}:{other}") == "ok x/b"
    if protocol != "sctp":
        couple.rules()
        assert couple.ask(f"{protocol}:9") == "refused"


def test_further_tries_pass_a_moment_of_silence(couple: Couple) -> None:
    couple.rules("-A INPUT -p udp -m statistic --mode nth --every 3 --packet 0 -j DROP")
    seen = pods.observe(couple.probers, "udp:80", {("x/a", "x/b"): MANY})
    assert seen["x/a", "x/b"] == "ok x/b"


def test_unreachable_is_not_silence(couple: Couple) -> None:
    couple.probers[0].ask({"tcp:80": {"192.0.2.1": 1}}, 0.3)
    assert couple.probers[0].answer() == {"tcp:80": {"192.0.2.1": "ENETUNREACH"}}


def test_doors_are_told_apart_in_one_batch(couple: Couple) -> None:
    couple.rules("-A INPUT -p udp --dport 81 -j DROP", "-A INPUT -p sctp --dport 80 -j DROP")
    shut = {"udp:81", "sctp:80"}
    # What is open answers sooner or later.
    tries = {
        door: {("x/a", "x/b"): 1 if door in shut else MANY, ("x/b", "x/a"): MANY}
        for door in pods.SERVED
    }
    seen = pods.observe_all(couple.probers, tries)
    closed = {door for door in pods.SERVED if seen[door]["x/a", "x/b"] == "silent"}
    assert closed == shut
    assert all(seen[door]["x/b", "x/a"] == "ok x/a" for door in pods.SERVED)


def test_the_kernel_tracks_sctp_that_no_socket_speaks(couple: Couple) -> None:
    """An INIT is NEW, not INVALID, so stateful rules treat it as they treat TCP."""
    state = "-A INPUT -p sctp -m conntrack --ctstate"
    couple.rules(f"{state} INVALID -j DROP", f"{state} NEW -j ACCEPT", f"{state} ESTABLISHED")
    assert couple.ask_once("sctp:80", HANG / 2) == "ok x/b"
    invalid, new, established = couple.packets()
    assert (invalid, new) == (0, 1)
    # The server's own try at x/a: its INIT-ACK comes back as part of a known connection.
    assert established == 1


def test_the_kernel_refuses_a_wrong_sctp_checksum(couple: Couple) -> None:
    state = "-A INPUT -p sctp -m conntrack --ctstate"
    couple.rules(f"{state} INVALID", f"{state} NEW")

    def send() -> None:
        data = bytearray(sctp.pack(sctp.Packet(20000, 80, 0, sctp.INIT, 1)))
        data[8] ^= 1
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, sctp.PROTOCOL) as raw:
            raw.sendto(bytes(data), (ADDRESSES["x/b"], 0))

    couple.client.call(send)
    wait_for(lambda: sum(couple.packets()))
    assert couple.packets() == [1, 0]
