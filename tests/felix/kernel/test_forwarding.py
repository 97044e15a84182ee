"""Packets through a node that felix programs: what must pass passes, what must not does not."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.felix.world import BLOCK, NODE, Pod, World, reaches
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for


@pytest.fixture(scope="module", autouse=True)
def pods(world: World) -> None:
    world.add_pod("a", "cali0000000000a", "10.65.0.1", "fd65::1")
    world.add_pod("b", "cali0000000000b", "10.65.0.2", "fd65::2")
    for prefix in ("10.65.0.1/32", "10.65.0.2/32", "fd65::1/128", "fd65::2/128"):
        wait_for(partial(world.route, prefix))
    wait_for(lambda: "cali-fw-cali0000000000b" in world.chain("cali-from-wl-dispatch-0"))


@pytest.mark.promise("M-120")
@pytest.mark.promise("M-139")
def test_routes_are_the_pods_and_the_block(world: World) -> None:
    assert world.route("10.65.0.1/32") == ("10.65.0.1 dev cali0000000000a scope link metric 1024")
    assert world.route(BLOCK) == "blackhole 10.65.0.0/26 metric 1024"
    assert "fd65::1 dev cali0000000000a" in world.route("fd65::1/128")


@pytest.mark.promise("M-113")
def test_pods_reach_each_other_their_node_and_are_reached(world: World) -> None:
    a, b = world.pods[:2]
    assert a.reaches("10.65.0.2", wait=HANG)
    assert b.reaches("10.65.0.1", wait=HANG)
    a.until_reached("fd65::2", "IPv6 between pods")
    assert a.reaches("10.99.7.1", wait=HANG), "a pod reaches its node"
    assert reaches(world.node, "10.65.0.1", wait=HANG), "a node reaches its pod"
    assert reaches(world.outside, "10.65.0.1", wait=HANG), "a routed network reaches the pod"


def test_the_receiver_sees_the_pods_own_address(world: World) -> None:
    a, b = world.pods[:2]
    assert seen_source(b.space, a.space, "10.65.0.2") == "10.65.0.1"


@pytest.mark.promise("F-92")
def test_traffic_that_leaves_the_pools_has_the_nodes_address(world: World) -> None:
    a = world.pods[0]
    assert seen_source(world.outside, a.space, "203.0.113.9") == "10.99.7.1"


def test_an_unknown_interface_gets_nothing_through(world: World) -> None:
    stranger = world.wire("cali000stranger", "10.65.0.30")
    world.ip("route add 10.65.0.30/32 dev cali000stranger")
    try:
        assert not stranger.reaches("10.65.0.1", wait=0.3)
        assert not stranger.reaches("10.99.7.1", wait=0.3)
        assert not reaches(world.outside, "10.65.0.30", wait=0.3)
        world.put_endpoint("stranger", stranger)
        stranger.until_reached("10.65.0.1")
    finally:
        world.delete_endpoint("stranger")
        world.node.run("ip", "link", "del", "cali000stranger")


def test_a_spoofed_source_is_dropped(world: World) -> None:
    a = world.pods[0].space
    a.run("ip", "addr", "add", "10.65.0.77/32", "dev", "eth0")
    a.run("ip", "addr", "add", "10.65.0.2/32", "dev", "eth0")
    before = raw_drops(world)
    ping = ("ping", "-n", "-c", "2", "-W", "0.3", "-i", "0.2")
    a.run(*ping, "-I", "10.65.0.77", "203.0.113.9", check=False)
    assert raw_drops(world) >= before + 2, "an address that nobody has"
    before = raw_drops(world)
    a.run(*ping, "-I", "10.65.0.2", "203.0.113.9", check=False)
    assert raw_drops(world) >= before + 2, "another pod's address"
    a.run("ip", "addr", "del", "10.65.0.77/32", "dev", "eth0")
    a.run("ip", "addr", "del", "10.65.0.2/32", "dev", "eth0")
    assert world.pods[0].reaches("203.0.113.9", wait=HANG)


def test_encapsulated_packets_do_not_leave_a_pod(world: World) -> None:
    a = world.pods[0]
    assert receives_udp(world.outside, a.space, "203.0.113.9", 5789, HANG)
    assert not receives_udp(world.outside, a.space, "203.0.113.9", 4789)


@pytest.mark.promise("M-120")
def test_a_deleted_endpoint_leaves_no_route_and_no_rule(world: World) -> None:
    pod = world.add_pod("gone", "cali00000gone", "10.65.0.40")
    pod.until_reached("10.65.0.1")
    world.delete_endpoint("gone")
    wait_for(lambda: not world.route("10.65.0.40/32"))
    wait_for(lambda: not world.chain("cali-fw-cali00000gone"))
    wait_for(lambda: "cali00000gone" not in world.chain("cali-from-wl-dispatch-0"))
    assert not pod.reaches("10.65.0.1", wait=0.3)
    # A free address of an own block must not loop: it ends here, with an answer.
    assert "blackhole" in world.route(BLOCK)


def test_a_departed_pods_connections_are_forgotten(world: World) -> None:
    pod = world.add_pod("talks", "cali0000talks", "10.65.0.42")
    pod.until_reached("203.0.113.9")
    assert seen_source(world.outside, pod.space, "203.0.113.9")
    assert "src=10.65.0.42" in world.node.run("conntrack", "-L")
    # Of its own: what earlier tests left may have run out, or there was no earlier test.
    assert seen_source(world.outside, world.pods[0].space, "203.0.113.9")
    world.delete_endpoint("talks")
    wait_for(lambda: "10.65.0.42" not in world.node.run("conntrack", "-L"))
    assert "src=10.65.0.1 " in world.node.run("conntrack", "-L"), "others keep theirs"


def test_parameters_of_the_datastore_apply_live(world: World) -> None:
    spec = {"natOutgoingExclusions": "IPPoolsAndHostIPs", "bpfLogLevel": "Off", "healthPort": "x"}
    world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", spec)
    wait_for(lambda: "cali40all-hosts-net" in world.chain("cali-nat-outgoing", "nat"))
    assert "10.99.7.1" in world.kernel.members("cali40all-hosts-net")
    world.delete("felixconfigurations", f"node.{NODE}")
    wait_for(lambda: "cali40all-hosts-net" not in world.chain("cali-nat-outgoing", "nat"))
    wait_for(lambda: not world.kernel.members("cali40all-hosts-net"))


def test_what_has_no_effect_is_told(world: World) -> None:
    path = world.folder / "run" / "calico" / "status" / "felix.json"
    spec = {"bpfEnabled": True, "healthPort": "x", "bpfLogLevel": ""}
    world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", spec)
    name = f"FelixConfiguration(node.{NODE})"

    def told() -> list[str]:
        conditions = ready_status(path).get("conditions", [])
        return sorted(one["reason"] for one in conditions if name in str(one))

    wait_for(lambda: len(told()) == 2)
    first, second = told()
    assert "bpfEnabled='True': not enforced: there is no eBPF data plane" in first
    assert "spec.healthPort: 'x' is not valid" in second
    assert second.endswith("its other parameters are in force")
    world.delete("felixconfigurations", f"node.{NODE}")
    wait_for(lambda: not told())


def test_an_endpoint_before_its_interface_is_served_when_that_comes(world: World) -> None:
    early = Pod(world.outside, "cali0000early", "10.65.0.41", "")
    world.put_endpoint("early", early)
    wait_for(lambda: "cali0000early" in world.chain("cali-from-wl-dispatch-0"))
    assert not world.route("10.65.0.41/32")
    pod = world.wire("cali0000early", "10.65.0.41")
    wait_for(lambda: world.route("10.65.0.41/32"))
    assert pod.reaches("10.65.0.1", wait=HANG)


@pytest.mark.promise("M-118")
def test_the_process_is_seen_as_calico_felix(world: World) -> None:
    assert world.process is not None
    name = Path(f"/proc/{world.process.pid}/cmdline").read_text().strip("\0")
    assert name.startswith("calico-felix")


@pytest.mark.promise("M-205")
@pytest.mark.promise("M-206")
def test_health_is_served(world: World) -> None:
    assert world.get("/liveness")[0] == 200
    status, table = world.get("/readiness")
    assert status == 200
    assert "InternalDataplaneMainLoop" in table
    assert "CalculationGraph" in table


def test_metrics_have_calicos_names(world: World) -> None:
    assert world.metric("felix_resync_state") == 3
    assert world.metric("felix_active_local_endpoints") >= 2
    assert world.metric("felix_route_table_num_routes") >= 4
    assert world.metric("felix_int_dataplane_failures_total") == 0, world.log()[-4000:]


def test_the_status_file_tells_the_state_to_everyone(world: World) -> None:
    path = world.folder / "run" / "calico" / "status" / "felix.json"
    status = wait_for(lambda: ready_status(path))
    assert status["in_sync"] is True
    assert status["datastore_connected"] is True
    assert status["bgp_connected"] is False
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_endpoint_in_force_has_calicos_status_file(world: World) -> None:
    folder = world.folder / "run" / "calico" / "endpoint-status"
    data = wait_for(lambda: read(folder / "k8s default%2Fa eth0"))
    assert data == {
        "ifaceName": "cali0000000000a",
        "mac": "aa:bb:cc:dd:ee:01",
        "ipv4Nets": ["10.65.0.1/32"],
        "ipv6Nets": ["fd65::1/128"],
    }


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    return found


def ready_status(path: Path) -> dict[str, Any]:
    status = read(path)
    return status if status.get("ready") else {}


def raw_drops(world: World) -> int:
    """Packets that the anti-spoofing rule has dropped."""
    rules = world.kernel.counted("cali-PREROUTING", "raw")
    return sum(packets for packets, text in rules if "rpfilter" in text or "fib saddr" in text)


SERVE = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    server.settimeout(120)
    print("ready", flush=True)
    print(server.accept()[1][0], flush=True)
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 120)"
LISTEN_UDP = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", int(sys.argv[1])))
s.settimeout(float(sys.argv[2]))
print("ready", flush=True)
try:
    print(s.recv(9), flush=True)
except TimeoutError:
    pass
"""
SEND_UDP = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
"""


def seen_source(server: Namespace, client: Namespace, address: str) -> str:
    """The source address that a TCP server sees."""
    listener = server.popen(sys.executable, "-c", SERVE, "8080", stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    client.run(sys.executable, "-c", CONNECT, address, "8080")
    return listener.communicate(timeout=HANG)[0].strip()


def receives_udp(
    server: Namespace, client: Namespace, address: str, port: int, within: float = 0.5
) -> bool:
    """Whether a datagram arrives."""
    command = (sys.executable, "-c", LISTEN_UDP, str(port), str(within))
    listener = server.popen(*command, stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    client.run(sys.executable, "-c", SEND_UDP, address, str(port))
    return bool(listener.communicate(timeout=2 * HANG)[0].strip())
