"""Forged tunnel packets: a pod that wraps a packet as another node would.

The node has a real VXLAN device with Calico's numbers. The same frame is sent by a neighbour of
the node, which a node is, and by a pod; inside it is a packet for another pod in the name of a
third. The kernel has no IPIP: there it is heard before anybody would unwrap it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.advisories.conftest import OUTSIDE, OUTSIDE6
from tests.felix import frames
from tests.felix.world import World
from tests.support.patience import HANG, wait_for

VNI, PORT = 4096, 4789
NODE = {4: "10.99.7.1", 6: "2001:db8:7::1"}
SENDER = {4: "10.65.0.1", 6: "fd65::1"}
NEIGHBOUR = {4: OUTSIDE, 6: OUTSIDE6}
DEVICE_MAC = "66:00:00:00:00:01"


@pytest.fixture(params=[4, 6])
def tunnel(request: pytest.FixtureRequest, careless: World) -> Iterator[int]:
    """The node's VXLAN device, over one family."""
    version: int = request.param
    device = f"type vxlan id {VNI} dstport {PORT} local {NODE[version]} nolearning dev eth0"
    # IPv6 without a checksum is how some hardware sends it; a forger would take what is taken.
    device += " udp6zerocsumrx" if version == 6 else ""
    careless.node.run(*f"ip link add vx0 address {DEVICE_MAC} {device}".split())
    careless.node.run("ip", "link", "set", "vx0", "up")
    yield version
    careless.node.run("ip", "link", "del", "vx0")


def wrapped(version: int, source: str, to: str, mark: bytes) -> bytes:
    """A datagram of a pod elsewhere to pod b, in a tunnel packet."""
    inner = frames.ipv4("10.65.9.9", "10.65.0.2", frames.UDP, frames.udp(53, mark))
    ethernet = bytes.fromhex(DEVICE_MAC.replace(":", "")) + bytes.fromhex("660000000002")
    head = bytes((8, 0, 0, 0)) + VNI.to_bytes(3, "big") + b"\0"
    payload = head + ethernet + b"\x08\x00" + inner
    if version == 4:
        return frames.ipv4(source, to, frames.UDP, frames.udp(PORT, payload))
    return frames.ipv6(source, to, frames.UDP, frames.udp6(source, to, PORT, payload), 64)


@pytest.mark.promise("F-66")
def test_a_pods_tunnel_packet_is_not_unwrapped(careless: World, tunnel: int) -> None:
    a, b = careless.pods[:2]
    kind = frames.IPV4 if tunnel == 4 else frames.IPV6
    mac = careless.node.run("cat", "/sys/class/net/eth0/address").strip().replace(":", "")
    careless.outside.run("ping", "-c1", "-W", str(HANG), NODE[tunnel])
    with frames.ears(b.space) as heard:

        def from_a_node() -> bool:
            packet = wrapped(tunnel, NEIGHBOUR[tunnel], NODE[tunnel], b"of a node")
            frames.send(careless.outside, kind, packet, to=bytes.fromhex(mac))
            return heard(b"of a node", 0.3)

        wait_for(from_a_node, "a node's tunnel packet is unwrapped")
        for source in (SENDER[tunnel], NEIGHBOUR[tunnel], NODE[tunnel]):
            for number in range(5):
                mark = f"of a pod {source} {number}!".encode()
                frames.send(a.space, kind, wrapped(tunnel, source, NODE[tunnel], mark))
            assert not heard(f"of a pod {source}".encode(), 0.3), source


@pytest.mark.promise("F-66")
def test_a_pods_tunnel_packet_does_not_get_to_another_node(careless: World, tunnel: int) -> None:
    a = careless.pods[0]
    kind = frames.IPV4 if tunnel == 4 else frames.IPV6
    with frames.ears(careless.outside) as heard:
        packet = wrapped(tunnel, SENDER[tunnel], NEIGHBOUR[tunnel], b"to a node")
        frames.send(a.space, kind, packet)
        assert not heard(b"to a node", 0.3)
        # That other datagrams of the same pod do get there, says test_spoofing.


@pytest.mark.promise("F-66")
def test_a_pods_ipip_packet_comes_to_nobody(careless: World) -> None:
    a, b = careless.pods[:2]

    def listen() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, frames.IPIP)

    def packet(source: str, to: str, mark: bytes) -> bytes:
        inner = frames.ipv4("10.65.9.9", "10.65.0.2", frames.UDP, frames.udp(53, mark))
        return frames.ipv4(source, to, frames.IPIP, inner)

    with (
        careless.node.call(listen) as node,
        frames.ears(careless.outside) as outside,
        frames.ears(b.space) as other,
    ):
        node.settimeout(HANG)
        mac = careless.node.run("cat", "/sys/class/net/eth0/address").strip().replace(":", "")
        good = packet(OUTSIDE, NODE[4], b"of a node")
        frames.send(careless.outside, frames.IPV4, good, to=bytes.fromhex(mac))
        assert b"of a node" in node.recv(2048)
        node.settimeout(0.3)
        for to in (NODE[4], OUTSIDE, b.address):
            frames.send(a.space, frames.IPV4, packet("10.65.0.1", to, b"of a pod"))
        with pytest.raises(TimeoutError):
            node.recv(2048)
        assert not outside(b"of a pod", 0.2)
        assert not other(b"of a pod", 0.2)
