"""Single parameters on a real node: what they switch, live where they can be, else by a restart."""

from __future__ import annotations

import pytest

from tests.felix.world import World
from tests.support.patience import HANG, wait_for


def configure(world: World, **spec: object) -> None:
    world.put("felixconfigurations", "default", "FelixConfiguration", spec)


def rules6(world: World) -> str:
    found = (world.node.run(f"ip6tables-{k}-save", check=False) for k in ("nft", "legacy"))
    return "".join(found)


@pytest.fixture
def node(bare_world: World) -> World:
    bare_world.environment["FELIX_NFTABLESMODE"] = "Disabled"
    bare_world.etcd.start()
    bare_world.write_cluster()
    return bare_world


@pytest.mark.promise("M-196")
def test_without_ipv6_nothing_of_it_is_touched(node: World) -> None:
    pod = node.add_pod("a", "cali0000000000a", "10.65.0.1", "fd65::1")
    node.node.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=0")
    node.start_felix(FELIX_IPV6SUPPORT="false")
    node.wait_ready()
    wait_for(lambda: pod.reaches("203.0.113.9", wait=0.3))
    assert "cali" not in rules6(node)
    assert node.routes("proto", "109", family=6) == ""
    assert "cali60" not in node.node.run("ipset", "list", "-name")
    assert node.node.run("sysctl", "-n", "net.ipv6.conf.all.forwarding").strip() == "0"


@pytest.mark.promise("M-196")
def test_a_parameter_that_needs_it_ends_felix_for_a_new_start(node: World) -> None:
    configure(node, ipv6Support=True)
    pod = node.add_pod("a", "cali0000000000a", "10.65.0.1", "fd65::1")
    node.start_felix()
    node.wait_ready()
    wait_for(lambda: "cali" in rules6(node))
    configure(node, ipv6Support=False)
    assert node.process is not None
    assert node.process.wait(15) == 129
    assert "changed: Ipv6Support" in node.log()
    # Nobody felt it.
    assert pod.reaches("203.0.113.9", wait=HANG)
    node.start_felix()
    node.wait_ready()
    assert pod.reaches("203.0.113.9", wait=HANG)


@pytest.mark.promise("M-197")
def test_the_level_of_the_log_follows_in_any_case_of_letters(node: World) -> None:
    node.start_felix(FELIX_LOGSEVERITYSCREEN="error")
    node.wait_ready()
    assert " INFO " not in node.log()
    node.stop_felix()
    node.start_felix(FELIX_LOGSEVERITYSCREEN="iNFO")
    node.wait_ready()
    assert " INFO " in node.log()
    assert "LogSeverityScreen" not in node.log()


@pytest.mark.promise("M-197")
def test_the_level_of_the_log_follows_live(node: World) -> None:
    def shrink(mtu: int) -> None:
        node.ip(f"link set eth0 mtu {mtu}")
        file = node.folder / "run" / "var-lib" / "calico" / "mtu"
        wait_for(lambda: file.read_text() == f"{mtu}\n")

    node.start_felix()
    node.wait_ready()
    shrink(1490)
    assert "the MTU is 1490" in node.log()
    configure(node, logSeverityScreen="Error")
    node.add_pod("a", "cali0000000000a", "10.65.0.1")
    wait_for(lambda: node.route("10.65.0.1/32"))
    shrink(1480)
    assert "the MTU is 1480" not in node.log()
    configure(node)
    node.delete_endpoint("a")
    wait_for(lambda: not node.route("10.65.0.1/32"))
    shrink(1470)
    assert "the MTU is 1470" in node.log()


def test_labels_of_the_node_choose_its_configuration(node: World) -> None:
    spec = {"nodeSelector": "rack == 'a'", "endpointStatusPathPrefix": "/run/other"}
    node.put("felixconfigurations", "rack-a", "FelixConfiguration", spec)
    node.add_pod("a", "cali0000000000a", "10.65.0.1")
    node.start_felix()
    node.wait_ready()
    before = node.folder / "run" / "calico" / "endpoint-status" / "k8s default%2Fa eth0"
    after = node.folder / "run" / "other" / "endpoint-status" / before.name
    wait_for(before.exists)
    node.put(
        "nodes", "node1", "Node", {"bgp": {"ipv4Address": "10.99.7.1/24"}}, labels={"rack": "a"}
    )
    wait_for(after.exists)
    assert not before.exists()


def test_a_port_that_was_taken_is_listened_on_when_it_is_free(node: World) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 19099)):
        node.start_felix()
        wait_for(lambda: "the health server cannot listen" in node.log())
        wait_for(lambda: "programming begins" in node.log())
    node.wait_ready(20)
