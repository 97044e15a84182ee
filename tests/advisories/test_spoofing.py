"""A pod that lies about who it is: in the packets it sends, in ARP, in neighbour discovery.

Whatever it claims, its packets come out under its own addresses only, and what is another's comes
to the other. The host has no reverse path filter and takes unasked ARP.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_address

import pytest

from tests.advisories.conftest import OUTSIDE, OUTSIDE6
from tests.felix import frames
from tests.felix.world import Pod, World
from tests.support.patience import HANG, wait_for

Heard = Callable[[bytes, float], bool]
LIAR = bytes.fromhex("020000000666")
PORT = 9999
OWN = {4: "10.65.0.1", 6: "fd65::1"}
NODE = {4: "10.99.7.1", 6: "2001:db8:7::1"}
WORLD = {4: OUTSIDE, 6: OUTSIDE6}
FORGED = {
    4: ("10.65.0.2", "10.65.0.77", "203.0.113.77", OUTSIDE, NODE[4], "127.0.0.1", "0.0.0.0"),
    6: ("fd65::2", "fd65::77", "2001:db8:9::9", OUTSIDE6, NODE[6], "::1", "::"),
}
SOLICITATION, ADVERTISEMENT = 135, 136
SOLICITED_AND_OVERRIDING = 0x60000000


@contextmanager
def node_hears(world: World, address: str) -> Iterator[Heard]:
    """What comes to a socket of the node itself."""

    def listen() -> socket.socket:
        made = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        )
        made.bind((address, PORT))
        return made

    def came(what: bytes, within: float) -> bool:
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            ear.settimeout(left)
            try:
                if what in ear.recv(2048):
                    return True
            except TimeoutError:
                return False
        return False

    with world.node.call(listen) as ear:
        yield came


def datagram(source: str, to: str, mark: bytes) -> bytes:
    """A UDP packet under any source."""
    if ":" in source:
        body = frames.udp6(source, to, PORT, mark)
        return frames.ipv6(source, to, frames.UDP, body, 64)
    return frames.ipv4(source, to, frames.UDP, frames.udp(PORT, mark))


def send(pod: Pod, packet: bytes) -> None:
    """Out of the pod, to the host's end of its cable."""
    kind = frames.IPV4 if packet[0] >> 4 == 4 else frames.IPV6
    frames.send(pod.space, kind, packet)


@pytest.mark.promise("PAIN-18")
@pytest.mark.parametrize("version", [4, 6])
def test_a_forged_source_reaches_neither_pod_nor_node_nor_world(
    careless: World, version: int
) -> None:
    a, b = careless.pods[:2]
    with ExitStack() as stack:
        targets = {
            "world": (WORLD[version], stack.enter_context(frames.ears(careless.outside))),
            "pod": (
                b.address if version == 4 else b.address6,
                stack.enter_context(frames.ears(b.space)),
            ),
            "node": (NODE[version], stack.enter_context(node_hears(careless, NODE[version]))),
        }
        for what, (to, heard) in targets.items():
            own = f"honest {what} {version}!".encode()
            wait_for(partial(passes, a, version, to, own, heard))
            for number, source in enumerate(FORGED[version]):
                mark = f"forged {what} {version} {number}!".encode()
                send(a, datagram(source, to, mark))
                assert not heard(mark, 0.15), f"{source} -> {what}"
            again = f"honest again {what} {version}!".encode()
            assert passes(a, version, to, again, heard, HANG)


def test_what_the_node_serves_itself_alone_is_out_of_reach(careless: World) -> None:
    """CVE-2020-8558: with route_localnet a neighbour may ask for 127.0.0.1. A pod may not."""
    a = careless.pods[0]
    assert careless.node.run("sysctl", "-n", "net.ipv4.conf.cali0a.route_localnet") == "1\n"
    with node_hears(careless, "127.0.0.1") as heard:
        for to in ("127.0.0.1", "127.0.0.2"):
            send(a, datagram(OWN[4], to, b"for the loopback"))
        assert not heard(b"for the loopback", 0.3)
    with node_hears(careless, NODE[4]) as heard:
        assert passes(a, 4, NODE[4], b"for the node", heard, HANG)


def passes(pod: Pod, version: int, to: str, mark: bytes, heard: Heard, within: float = 0.3) -> bool:
    """Whether a datagram under the pod's own address arrives."""
    send(pod, datagram(OWN[version], to, mark))
    return heard(mark, within)


def advertisement(target: str, to: str) -> bytes:
    """ "I am that address, forget who was", as an answer or unasked."""
    option = struct.pack("!BB", 2, 1) + LIAR
    body = struct.pack("!I", SOLICITED_AND_OVERRIDING) + ip_address(target).packed + option
    message = frames.icmpv6("fe80::bad", to, ADVERTISEMENT, body)
    return frames.ipv6("fe80::bad", to, frames.ICMPV6, message)


def solicitation(source: str, target: str) -> bytes:
    """A question that says, by the way, where its asker is found."""
    to = "ff02::1:ff" + ip_address(target).exploded[-7:]
    option = struct.pack("!BB", 1, 1) + LIAR
    body = bytes(4) + ip_address(target).packed + option
    message = frames.icmpv6(source, to, SOLICITATION, body)
    return frames.ipv6(source, to, frames.ICMPV6, message)


def lie_in_arp(liar: Pod, victim: Pod) -> None:
    """Answers and questions, unasked, in the name of the victim, the router and the node."""
    for operation in (1, 2):
        for sender in (victim.address, OUTSIDE, NODE[4], "169.254.1.1"):
            for target in (sender, "169.254.1.1", NODE[4]):
                frame = frames.arp(operation, sender, target)
                frames.send(liar.space, frames.ARP, frame, to=frames.EVERYBODY)


def lie_in_discovery(liar: Pod, victim: Pod) -> None:
    """The same with the means of IPv6."""
    gateway = "fe80::ecee:eeff:feee:eeee"
    for claimed in (victim.address6, OUTSIDE6, NODE[6], gateway):
        for to in ("ff02::1", gateway, NODE[6]):
            packet = advertisement(claimed, to)
            ethernet = frames.ALL_NODES if to == "ff02::1" else frames.HOST_MAC
            frames.send(liar.space, frames.IPV6, packet, to=ethernet)
        frames.send(liar.space, frames.IPV6, solicitation(claimed, gateway))


@pytest.mark.parametrize("version", [4, 6])
def test_lies_about_addresses_bring_nobody_elses_packets(careless: World, version: int) -> None:
    """The world sends to the victim while the liar claims to be everybody."""
    liar, victim = careless.pods[:2]
    victims = {4: victim.address, 6: victim.address6}
    with frames.ears(liar.space) as caught, frames.ears(victim.space) as heard:
        for number in range(5):
            (lie_in_arp if version == 4 else lie_in_discovery)(liar, victim)
            mark = f"for the victim {version} {number}!".encode()
            send_plain(careless, victims[version], mark)
            assert heard(mark, HANG), "the victim is cut off"
            assert not caught(mark, 0.1), "the liar has it"
        assert victim.reaches(WORLD[version], wait=HANG)
        assert liar.reaches(WORLD[version], wait=HANG)
        assert liar.reaches(victims[version], wait=HANG)
    elsewhere = "02:00:00:00:06:66"
    for line in careless.node.run("ip", "neigh", "show").splitlines():
        if elsewhere in line:
            assert "dev cali0a" in line, f"the lie went further than its own cable: {line}"


def send_plain(world: World, to: str, mark: bytes) -> None:
    """From the host outside."""

    def do() -> None:
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as mouth:
            mouth.sendto(mark, (to, PORT))

    world.outside.call(do)
