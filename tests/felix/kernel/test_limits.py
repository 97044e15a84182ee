"""Limits and marks of a workload's traffic, with packets: `qosControls` of its endpoint.

a 10.65.0.1, b 10.65.0.2 -- node 10.99.7.1 -- outside 10.99.7.2
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest

from felix.dataplane.devices.shaping import device_of
from tests.felix.in_kernel import mode
from tests.felix.world import Pod, World, make_world
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for

PORT = 8080
OUTSIDE, OUTSIDE6 = "10.99.7.2", "2001:db8:7::2"
SMALL = 60_000 * 8
"""Bits of a burst."""


@pytest.fixture(scope="module", params=["nft", "nftables"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        # No refresh may mend what is written wrongly.
        world.environment |= mode(request.param) | {"FELIX_IPSETSREFRESHINTERVAL": "0"}
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        for number, name in enumerate("ab", 1):
            world.add_pod(name, f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
        world.outside.run("ip", "route", "add", "fd65::/48", "via", "2001:db8:7::1")
        for pod in world.pods:
            wait_for(partial(pod.reaches, OUTSIDE))
            wait_for(partial(pod.reaches, OUTSIDE6))
        yield world


@pytest.fixture
def pod(world: World) -> Iterator[Pod]:
    """Pod a, without limits afterwards."""
    yield world.pods[0]
    limit(world)
    wait_for(lambda: not queues(world) and not world.chain("cali-egress-dscp", "mangle"))


def limit(world: World, **controls: Any) -> None:
    """Store the limits of pod a."""
    world.put_endpoint("a", world.pods[0], qosControls=controls or None)


def queues(world: World) -> dict[str, dict[str, Any]]:
    """The token buckets of the node, by link."""
    found = json.loads(world.node.run("tc", "-s", "-j", "qdisc", "show"))
    return {each["dev"]: each for each in found if each["kind"] == "tbf"}


def rules_of(world: World, way: str) -> str:
    return world.chain(f"cali-{way}-cali0a")


def sock(space: Namespace, kind: int, family: int = socket.AF_INET) -> socket.socket:
    made = space.call(lambda: socket.socket(family, kind))
    made.settimeout(HANG)
    return made


def listen(space: Namespace) -> socket.socket:
    made = sock(space, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("0.0.0.0", PORT))
    made.listen(16)
    return made


def connect(space: Namespace, address: str) -> socket.socket:
    made = sock(space, socket.SOCK_STREAM)
    made.connect((address, PORT))
    return made


@pytest.mark.parametrize("way", ["ingress", "egress"])
def test_connections_above_the_limit_are_reset(world: World, pod: Pod, way: str) -> None:
    client, server, address = (
        (world.outside, pod.space, pod.address)
        if way == "ingress"
        else (pod.space, world.outside, OUTSIDE)
    )
    chain = "tw" if way == "ingress" else "fw"
    with closing(listen(server)) as listener:
        limit(world, **{f"{way}MaxConnections": 2})
        wait_for(
            lambda: "Reset" in str(rules_of(world, chain)) or "reset" in rules_of(world, chain)
        )
        kept = [connect(client, address) for _ in range(2)]
        with pytest.raises(ConnectionRefusedError):
            connect(client, address)
        limit(world, **{f"{way}MaxConnections": 1})
        wait_for(lambda: " 1 " in rules_of(world, chain))
        # Both go on under the smaller limit (LIM-2).
        for one in kept:
            one.sendall(b"x")
            accepted, _ = listener.accept()
            assert accepted.recv(1) == b"x"
            accepted.close()
            one.close()


@pytest.mark.parametrize("way", ["ingress", "egress"])
def test_packets_above_the_rate_are_dropped(world: World, pod: Pod, way: str) -> None:
    rate, burst, sent = 10, 20, 400
    source, target, address = (
        (world.outside, pod.space, pod.address)
        if way == "ingress"
        else (pod.space, world.outside, OUTSIDE)
    )
    limit(world, **{f"{way}PacketRate": rate, f"{way}PacketBurst": burst})
    wait_for(lambda: "packet rate limit" in rules_of(world, "tw" if way == "ingress" else "fw"))
    with (
        closing(sock(target, socket.SOCK_DGRAM)) as heard,
        closing(sock(source, socket.SOCK_DGRAM)) as said,
    ):
        heard.bind(("0.0.0.0", PORT))
        begun = time.monotonic()
        for _ in range(sent):
            said.sendto(b"x", (address, PORT))
        # The bucket may have been filled with a few packets less; a busy kernel brings them late.
        came = sum(len(heard.recv(9)) for _ in range(burst // 2))
        heard.setblocking(False)
        with suppress(BlockingIOError):
            while heard.recv(9):
                came += 1
        took = time.monotonic() - begun
    # It is filled while packets are on their way.
    assert came <= burst + rate * took + 1


@pytest.mark.parametrize("way", ["ingress", "egress"])
def test_no_more_than_the_bandwidth_passes(world: World, pod: Pod, way: str) -> None:
    rate, size = 8_000_000, 1_500_000
    source, target, address = (
        (world.outside, pod.space, pod.address)
        if way == "ingress"
        else (pod.space, world.outside, OUTSIDE)
    )
    link = pod.interface if way == "ingress" else device_of(pod.interface)
    limit(world, **{f"{way}Bandwidth": rate, f"{way}Burst": SMALL})
    wait_for(lambda: link in queues(world))
    options = queues(world)[link]["options"]
    assert options["rate"] == rate // 8
    with closing(listen(target)) as listener, closing(connect(source, address)) as client:
        accepted, _ = listener.accept()
        begun, left, came = time.monotonic(), size, 0
        payload = memoryview(bytes(1 << 16))
        client.setblocking(False)
        accepted.setblocking(False)
        while came < size:
            with suppress(BlockingIOError):
                if left:
                    left -= client.send(payload[: min(left, len(payload))])
            with suppress(BlockingIOError):
                came += len(accepted.recv(1 << 16))
        took = time.monotonic() - begun
        accepted.close()
    # The bucket's burst goes at once; what is over it at the rate, headers not counted.
    assert took >= 0.95 * (size - SMALL // 8) * 8 / rate


def test_a_new_felix_writes_no_limit_anew_and_takes_what_is_not_wanted(
    world: World, pod: Pod
) -> None:
    both = {"ingressBandwidth": 50_000_000, "egressBandwidth": 40_000_000}
    limit(world, **both)
    wait_for(lambda: len(queues(world)) == 2)
    assert pod.reaches(OUTSIDE, count=3, wait=HANG)
    index = world.ip(f"-o link show {device_of(pod.interface)}").split(":")[0]
    before = queues(world)
    world.stop_felix()
    world.start_felix()
    world.wait_ready()
    assert pod.reaches(OUTSIDE, count=3, wait=HANG)
    after = queues(world)
    for link, queue in before.items():
        assert after[link]["bytes"] > queue["bytes"], "a bucket that is made anew counts anew"
    assert world.ip(f"-o link show {device_of(pod.interface)}").split(":")[0] == index
    # Another rate changes the same bucket.
    limit(world, **{**both, "egressBandwidth": 30_000_000})
    device = device_of(pod.interface)
    wait_for(lambda: queues(world)[device]["options"]["rate"] == 30_000_000 // 8)
    assert queues(world)[device]["bytes"] >= after[device]["bytes"]
    # What changes while felix is away.
    world.stop_felix()
    limit(world)
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: not queues(world))
    assert device not in world.ip("link")
    assert "ingress" not in world.node.run("tc", "qdisc", "show", "dev", pod.interface)
    assert pod.reaches(OUTSIDE, wait=HANG)


def test_the_device_goes_with_the_pod(world: World) -> None:
    third = world.wire("cali0c", "10.65.0.3")
    world.put_endpoint("c", third, qosControls={"egressBandwidth": 10_000_000})
    device = device_of("cali0c")
    wait_for(lambda: device in queues(world))
    world.ip("link del cali0c")
    world.delete_endpoint("c")
    wait_for(lambda: device not in world.ip("link"))
    world.pods.remove(third)


def test_a_mark_that_comes_back_at_once_is_written(world: World, pod: Pod) -> None:
    """Its sets may still be there, with the addresses as the kernel spells them."""
    for _ in range(2):
        limit(world, dscp="EF")
        wait_for(lambda: mark_of(pod.space, world.outside, OUTSIDE) == 46)
        limit(world)
        wait_for(lambda: not world.chain("cali-egress-dscp", "mangle"))


@pytest.mark.parametrize("version", [4, 6])
def test_only_what_leaves_the_cluster_is_marked(world: World, pod: Pod, version: int) -> None:
    limit(world, dscp="EF")
    a, b = world.pods[:2]
    outside, inside = (OUTSIDE, b.address) if version == 4 else (OUTSIDE6, b.address6)
    wait_for(lambda: mark_of(a.space, world.outside, outside) == 46)
    assert mark_of(b.space, world.outside, outside) == 0
    assert mark_of(a.space, b.space, inside) == 0


def mark_of(source: Namespace, target: Namespace, address: str) -> int:
    """The DSCP of a datagram as it arrives."""
    six = ":" in address
    family = socket.AF_INET6 if six else socket.AF_INET
    level, option = (
        (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS) if six else (socket.IPPROTO_IP, 13)
    )
    with (
        closing(sock(target, socket.SOCK_DGRAM, family)) as heard,
        closing(sock(source, socket.SOCK_DGRAM, family)) as said,
    ):
        heard.setsockopt(level, option, 1)
        heard.bind(("::" if six else "0.0.0.0", PORT))
        said.sendto(b"x", (address, PORT))
        _, ancillary, _, _ = heard.recvmsg(9, 64)
    return ancillary[0][2][0] >> 2
