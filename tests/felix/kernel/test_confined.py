"""What a workload with raw sockets cannot do, in both back ends, whatever the host's sysctls.

a 10.65.0.1, b 10.65.0.2 -- node 10.99.7.1 -- outside 10.99.7.2, 203.0.113.9
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from tests.felix import frames
from tests.felix.in_kernel import mode
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, Pod, World, make_world
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for

GRACE = 0.05
"""Seconds in which a packet may be overtaken by one that was sent after it."""
OUTSIDE, OUTSIDE6 = "10.99.7.2", "2001:db8:7::2"


@pytest.fixture(scope="module", params=["nft", "legacy", "nftables"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(request.param) | {
            # Of accept_ra the kernel tells nobody: it is seen when links are read back.
            "FELIX_INTERFACEREFRESHINTERVAL": "2",
        }
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        for number, name in enumerate("ab", 1):
            pod = world.add_pod(name, f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
        world.outside.run("ip", "route", "add", "fd65::/48", "via", "2001:db8:7::1")
        for pod in world.pods:
            pod.until_reached(OUTSIDE)
            pod.until_reached(OUTSIDE6)
        yield world


def passes(world: World, pod: Pod, packet: bytes, mark: bytes, within: float = 0.4) -> bool:
    """Whether a packet that holds these bytes comes out of the node."""
    kind = frames.IPV4 if packet[0] >> 4 == 4 else frames.IPV6
    with frames.ears(world.outside) as heard:
        frames.send(pod.space, kind, packet)
        return heard(mark, within)


@pytest.mark.promise("PAIN-18")
@pytest.mark.parametrize("rp_filter", [0, 1, 2])
def test_a_forged_source_goes_nowhere(world: World, rp_filter: int) -> None:
    a = world.pods[0]
    four = ("10.65.0.2", "203.0.113.77", "10.99.7.1", "10.65.0.1")
    six = ("fd65::2", "2001:db8:9::9", "2001:db8:7::1", "fd65::1")
    world.node.run("sysctl", "-qw", f"net.ipv4.conf.all.rp_filter={rp_filter}")
    try:
        with frames.ears(world.outside) as heard:
            for source in four + six:
                mark = f"forged{rp_filter}{source};".encode()
                if ":" in source:
                    body = frames.udp6(source, OUTSIDE6, 9999, mark)
                    packet = frames.ipv6(source, OUTSIDE6, frames.UDP, body, 64)
                    frames.send(a.space, frames.IPV6, packet)
                else:
                    packet = frames.ipv4(source, OUTSIDE, frames.UDP, frames.udp(9999, mark))
                    frames.send(a.space, frames.IPV4, packet)
            # Its own go the same way behind the others: where they are, the others would be.
            for *forged, own in (four, six):
                assert heard(f"forged{rp_filter}{own};".encode(), HANG), own
                for source in forged:
                    assert not heard(f"forged{rp_filter}{source};".encode(), GRACE), source
    finally:
        world.node.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")


@pytest.mark.promise("F-66")
@pytest.mark.parametrize("tunnel", ["vxlan", "ipip"])
def test_tunnel_packets_cannot_be_forged(world: World, tunnel: str) -> None:
    a = world.pods[0]
    field = {"vxlan": "allowVXLANPacketsFromWorkloads", "ipip": "allowIPIPPacketsFromWorkloads"}

    def packet(to: str, mark: bytes) -> bytes:
        inner = frames.ipv4("10.65.0.2", "10.65.9.9", frames.UDP, frames.udp(53, mark))
        if tunnel == "ipip":
            return frames.ipv4("10.65.0.1", to, frames.IPIP, inner)
        head = bytes((8, 0, 0, 0, 0, 16, 0, 0)) + bytes(12) + b"\x08\x00"
        return frames.ipv4("10.65.0.1", to, frames.UDP, frames.udp(4789, head + inner))

    assert not passes(world, a, packet(OUTSIDE, b"shut-" + tunnel.encode()), b"shut")
    assert not hears(world.node, tunnel, lambda: frames.send(
        a.space, frames.IPV4, packet("10.99.7.1", b"to the node")))  # fmt: skip
    world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", {field[tunnel]: True})
    try:
        # The same packet, where it is allowed: what was heard before is no accident.
        wait_for(lambda: passes(world, a, packet(OUTSIDE, b"open-" + tunnel.encode()), b"open"))
    finally:
        world.delete("felixconfigurations", f"node.{NODE}")
    wait_for(lambda: not passes(world, a, packet(OUTSIDE, b"shut again"), b"shut again"))


@pytest.mark.promise("ADV-1")
def test_a_router_advertisement_is_nothing_to_the_node(world: World) -> None:
    a, before = world.pods[0], drops(world, "router advertisements")
    # Were it only for the setting, this moment would do.
    world.node.run("sysctl", "-qw", "net.ipv6.conf.cali0a.accept_ra=2")
    advert = frames.router_advertisement("fe80::bad")
    frames.send(a.space, frames.IPV6, *[advert] * 10, to=frames.ALL_NODES)
    wait_for(lambda: drops(world, "router advertisements") >= before + 10)
    assert "cali0a" not in world.routes("default", family=6)
    assert "2001:db8:bad" not in world.node.run("ip", "-6", "address")
    # Beyond the rule the setting is kept.
    wait_for(lambda: world.node.run("sysctl", "-n", "net.ipv6.conf.cali0a.accept_ra") == "0\n")


def test_redirects_are_nothing_to_the_node(world: World) -> None:
    before = drops(world, "router redirects")
    body = bytes(4) + bytes(16) + bytes(16)
    message = frames.icmpv6("fe80::bad", "ff02::1", 137, body)
    packet = frames.ipv6("fe80::bad", "ff02::1", frames.ICMPV6, message)
    frames.send(world.pods[0].space, frames.IPV6, packet, to=frames.ALL_NODES)
    wait_for(lambda: drops(world, "router redirects") > before)
    assert world.pods[0].reaches("fd65::2", wait=HANG), "neighbours are found as ever"


def test_forged_arp_harms_nobody(world: World) -> None:
    """Neither another pod's entry nor the router's, nor the neighbour table as a whole."""
    a, b = world.pods
    assert "02:00:00:00:06:66" not in world.ip("neigh show")
    for operation in (1, 2):
        for sender in ("10.65.0.2", OUTSIDE, "10.99.7.1", "169.254.1.1"):
            for target in ("169.254.1.1", "10.99.7.1", sender):
                frame = frames.arp(operation, sender, target)
                frames.send(a.space, frames.ARP, frame, to=frames.EVERYBODY)
    many = [f"10.7.{n // 250}.{n % 250}" for n in range(1500)]
    flood = [frames.arp(1, sender, "169.254.1.1") for sender in many]
    frames.send(a.space, frames.ARP, *flood, to=frames.EVERYBODY)
    assert "02:00:00:00:06:66" not in world.ip("neigh show")
    assert len(world.ip("neigh show dev cali0a").splitlines()) <= 3
    assert b.reaches(OUTSIDE, wait=HANG)
    assert a.reaches(b.address, wait=HANG)
    assert a.reaches(OUTSIDE, wait=HANG)


def test_further_sources_are_allowed_where_both_say_so(world: World) -> None:
    a = world.pods[0]
    nets = ["192.0.2.0/25", "2001:db8:5::/64"]
    world.put_endpoint("a", a, allowSpoofedSourcePrefixes=nets)

    def gets_out(source: str, within: float = 0.2) -> bool:
        mark = source.encode()
        if ":" in source:
            body = frames.udp6(source, OUTSIDE6, 9999, mark)
            packet = frames.ipv6(source, OUTSIDE6, frames.UDP, body, 64)
        else:
            packet = frames.ipv4(source, OUTSIDE, frames.UDP, frames.udp(9999, mark))
        return passes(world, a, packet, mark, within)

    try:
        wait_for(lambda: conditions_of(world, "WorkloadEndpoint"))
        assert not gets_out("192.0.2.1")
        spec = {"workloadSourceSpoofing": "Any"}
        world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", spec)
        wait_for(lambda: gets_out("192.0.2.1") and gets_out("2001:db8:5::1"))
        assert not gets_out("192.0.2.200")
        assert not gets_out("2001:db8:6::1")
        assert gets_out("10.65.0.1", HANG)
        world.delete("felixconfigurations", f"node.{NODE}")
        wait_for(lambda: not gets_out("192.0.2.1"))
    finally:
        world.put_endpoint("a", a)


def drops(world: World, what: str) -> int:
    """Packets of IPv6 that rules with such a comment have counted."""
    if world.kernel.native:
        listed = world.node.run("nft", "list", "table", "ip6", "calico")
        counted = re.findall(rf"counter packets (\d+) .*{what}", listed)
    else:
        counted = [
            packets
            for kind in ("legacy", "nft")
            for packets in re.findall(
                rf"^\[(\d+):.*{what}",
                world.node.run(f"ip6tables-{kind}-save", "-c", "-t", "raw", check=False),
                re.MULTILINE,
            )
        ]
    return sum(map(int, counted))


def hears(space: Namespace, tunnel: str, act: object) -> bool:
    """Whether a tunnel's packet comes to the node itself while something is done."""

    def listen() -> socket.socket:
        if tunnel == "ipip":
            return socket.socket(socket.AF_INET, socket.SOCK_RAW, frames.IPIP)
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("10.99.7.1", 4789))
        return made

    with space.call(listen) as ear:
        ear.settimeout(0.4)
        assert callable(act)
        act()
        try:
            return bool(ear.recv(2000))
        except TimeoutError:
            return False
