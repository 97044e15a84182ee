"""Parameters of the rules with packets: to the own node, NAT, services, logs, size of sets.

a 10.65.0.1 -- node 10.99.7.1 -- outside 10.99.7.2, 203.0.113.9
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from tests.felix import frames, talk
from tests.felix.in_kernel import mode
from tests.felix.stage import allow, conditions_of
from tests.felix.world import NODE, Pod, World, make_world
from tests.support.patience import HANG, wait_for

FAR = "203.0.113.9"


@pytest.fixture(scope="module", params=["nft", "legacy", "nftables"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(request.param) | {"FELIX_DEFAULTENDPOINTTOHOSTACTION": ""}
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
        pod.until_reached(FAR)
        yield world


@contextmanager
def configured(world: World, **spec: Any) -> Iterator[None]:
    """Parameters of this node while it lasts."""
    world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", spec)
    try:
        yield
    finally:
        world.delete("felixconfigurations", f"node.{NODE}")


def node_of(world: World) -> Pod:
    return Pod(world.node, "eth0", "10.99.7.1", "2001:db8:7::1")


def outside_of(world: World) -> Pod:
    return Pod(world.outside, "eth0", FAR, "2001:db8:7::2")


@pytest.mark.promise("M-195")
@pytest.mark.promise("F-88")
@pytest.mark.parametrize("family", [4, 6])
def test_to_its_own_node_a_pod_comes_as_configured(world: World, family: int) -> None:
    """Dropped by default; Return leaves it to the host's own rules, Accept passes over them."""
    pod, node = world.pods[0], node_of(world)

    def open() -> bool:
        return talk.tcp(pod, node, 80, family)

    wait_for(lambda: not open())
    assert pod.reaches(FAR, wait=HANG), "what passes through is none of its business"
    tool = (
        f"{'iptables' if family == 4 else 'ip6tables'}-{'legacy' if world.kernel.legacy else 'nft'}"
    )
    rule = ("INPUT", "-i", "cali+", "-p", "tcp", "--dport", "80", "-j", "DROP")
    with configured(world, defaultEndpointToHostAction="Return"):
        wait_for(open)
        world.node.run(tool, "-A", *rule)
        try:
            wait_for(lambda: not open())
            if not world.kernel.native:
                with configured(world, defaultEndpointToHostAction="Accept"):
                    wait_for(open)
        finally:
            world.node.run(tool, "-D", *rule)
    with configured(world, defaultEndpointToHostAction="Accept"):
        wait_for(open)
        # Its own policy is asked first.
        world.put_endpoint("a", pod, profiles=[])
        wait_for(lambda: not open())
        world.put_endpoint("a", pod)
        wait_for(open)
    wait_for(lambda: not open())


def test_denied_may_be_told_the_sender(world: World) -> None:
    pod = world.pods[0]
    native = world.kernel.native
    field = "nftablesFilterDenyAction" if native else "iptablesFilterDenyAction"
    world.put_endpoint("a", pod, profiles=[])
    try:
        with configured(world, **{field: "Reject"}):
            wait_for(lambda: answer(pod, FAR) == "refused")
        wait_for(lambda: answer(pod, FAR) == "silence")
    finally:
        world.put_endpoint("a", pod)
    pod.until_reached(FAR)


def test_the_source_of_outgoing_nat_is_as_configured(world: World) -> None:
    pod, outside = world.pods[0], outside_of(world)
    world.ip("address add 10.99.7.77/32 dev eth0")
    try:
        wait_for(lambda: seen(pod, outside)[0] == "10.99.7.1")
        with configured(world, natPortRange="30000:30010"):
            wait_for(lambda: 30000 <= seen(pod, outside)[1] <= 30010)
            assert all(30000 <= seen(pod, outside, HANG)[1] <= 30010 for _ in range(3))
        with configured(world, natOutgoingAddress="10.99.7.77"):
            wait_for(lambda: seen(pod, outside)[0] == "10.99.7.77")
        wait_for(lambda: seen(pod, outside)[0] == "10.99.7.1")
        # A node's address is no pool's: masqueraded, unless it is excluded.
        world.put("nodes", "node2", "Node", {"bgp": {"ipv4Address": f"{FAR}/24"}})
        with configured(world, natOutgoingExclusions="IPPoolsAndHostIPs"):
            wait_for(lambda: seen(pod, outside)[0] == pod.address)
        wait_for(lambda: seen(pod, outside)[0] == "10.99.7.1")
    finally:
        world.delete("nodes", "node2")
        world.ip("address del 10.99.7.77/32 dev eth0")


@pytest.mark.parametrize(("family", "address"), [(4, "10.96.0.99"), (6, "fd96::99")])
def test_a_service_that_nobody_translates_does_not_leave_the_node(
    world: World, family: int, address: str
) -> None:
    pod = world.pods[0]
    world.node.run("ip", "-6", "route", "replace", "default", "via", "2001:db8:7::2")

    def leaves() -> bool:
        source, mark = (pod.address, b"loop4") if family == 4 else (pod.address6, b"loop6")
        if family == 4:
            packet = frames.ipv4(source, address, frames.UDP, frames.udp(9999, mark))
        else:
            body = frames.udp6(source, address, 9999, mark)
            packet = frames.ipv6(source, address, frames.UDP, body, 64)
        with frames.ears(world.outside) as heard:
            frames.send(pod.space, frames.IPV4 if family == 4 else frames.IPV6, packet)
            return heard(mark, 0.3)

    wait_for(leaves)
    nets = {"serviceClusterIPs": [{"cidr": "10.96.0.0/16"}, {"cidr": "fd96::/112"}]}
    world.put("bgpconfigurations", "default", "BGPConfiguration", nets)
    try:
        wait_for(lambda: not leaves())
        assert pod.reaches(FAR, wait=HANG)
        with configured(world, serviceLoopPrevention="Disabled"):
            wait_for(leaves)
        wait_for(lambda: not leaves())
    finally:
        world.delete("bgpconfigurations", "default")
    wait_for(leaves)


@pytest.mark.promise("F-69")
def test_a_log_rule_is_named_and_limited(world: World) -> None:
    pod = world.pods[0]
    spec = {"selector": "all()", "types": ["Egress"], "egress": [{"action": "Log"}, allow()]}
    world.put_endpoint("a", pod, labels={"a": ""})
    world.put("globalnetworkpolicies", "noisy", "GlobalNetworkPolicy", spec)
    try:
        with configured(world, logPrefix="felix %n", logActionRateLimit="1/hour",
                        logActionRateLimitBurst=3):  # fmt: skip
            wait_for(lambda: "felix noisy" in "".join(text for _, text in logged(world)))
            for _ in range(10):
                assert talk.tcp(pod, outside_of(world), 80, wait=HANG)
            ((count, text),) = logged(world)
            assert 1 <= count <= 4, text
        wait_for(lambda: "calico-packet" in "".join(text for _, text in logged(world)))
        for _ in range(6):
            assert talk.tcp(pod, outside_of(world), 80, wait=HANG)
        ((count, text),) = logged(world)
        assert count >= 6, text
    finally:
        world.delete("globalnetworkpolicies", "noisy")
        world.put_endpoint("a", pod)


@pytest.mark.promise("PAIN-28")
def test_another_size_of_sets_applies_to_sets_in_use(world: World) -> None:
    """Never half filled for a packet: the policy that denies its members always does."""
    pod = world.pods[0]
    nets = [f"192.0.2.{n}/32" for n in range(200)] + [f"{FAR}/32"]
    world.put("globalnetworksets", "many", "GlobalNetworkSet", {"nets": nets}, labels={"m": ""})
    rules = [{"action": "Deny", "destination": {"selector": "has(m)"}}, allow()]
    world.put_endpoint("a", pod, labels={"a": ""})
    spec = {"selector": "all()", "types": ["Egress"], "egress": rules}
    world.put("globalnetworkpolicies", "size", "GlobalNetworkPolicy", spec)
    try:
        wait_for(lambda: not pod.reaches(FAR, wait=0.2))
        assert pod.reaches("10.99.7.2", wait=HANG)
        for size in (4096, 250, 100):
            with configured(world, maxIpsetSize=size):
                if size == 100:
                    # The deny applies without the part that has no set: nothing gets out.
                    wait_for(lambda: conditions_of(world, "size"))
                    wait_for(lambda: not pod.reaches("10.99.7.2", wait=0.2))
                elif not world.kernel.native:
                    wait_for(partial(has_room_for, world, size))
                    assert pod.reaches("10.99.7.2", wait=HANG)
                assert not pod.reaches(FAR, wait=0.2)
        pod.until_reached("10.99.7.2")
        assert not pod.reaches(FAR, wait=0.2)
        wait_for(lambda: not conditions_of(world, "size"))
    finally:
        world.delete("globalnetworkpolicies", "size")
        world.delete("globalnetworksets", "many")
        world.put_endpoint("a", pod)


def has_room_for(world: World, size: int) -> bool:
    names = [n for n in world.kernel.sets() if n.startswith("cali40s:")]
    return any(f"maxelem {size}" in world.kernel.members(name) for name in names)


def logged(world: World) -> list[tuple[int, str]]:
    found = world.kernel.counted("cali-po-gnp/noisy")
    return [(count, text) for count, text in found if "LOG" in text or "log prefix" in text]


def answer(pod: Pod, address: str) -> str:
    """What becomes of a datagram: `refused` if somebody says so."""
    with pod.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.settimeout(0.3)
        sock.connect((address, 9))
        try:
            sock.send(b"x")
            sock.recv(10)
        except TimeoutError:
            return "silence"
        except OSError:
            return "refused"
        return "answer"


def seen(pod: Pod, outside: Pod, wait: float = 0.5) -> tuple[str, int]:
    """The address and port that a server outside sees of a pod; none: ("", 0)."""
    with ExitStack() as stack:
        server = outside.space.call(lambda: socket.create_server((FAR, 8080)))
        stack.callback(server.close)
        server.settimeout(wait)
        caller = pod.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        stack.callback(caller.close)
        caller.settimeout(wait)
        try:
            caller.connect((FAR, 8080))
            peer, where = server.accept()
        except OSError:
            return "", 0
        peer.close()
        return str(where[0]), int(where[1])
