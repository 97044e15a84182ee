"""Causes between the pods: routes, next hops, filters of the kernel, sizes, interfaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.topology import ROUTER_HOST
from tests.trace.scene import Scene, scene


@pytest.fixture(scope="module")
def two() -> Iterator[Scene]:
    """The lab. Rules do not matter here."""
    with scene("iptables-nft") as made:
        yield made


def block(two: Scene) -> str:
    """The route on node1 that leads to the server, as `ip route` takes it."""
    listed = two.node1.run(["ip", "route", "show", "match", two.server.address]).stdout
    lines = [line for line in listed.splitlines() if not line.startswith("default")]
    return lines[-1].strip()


def router(two: Scene) -> str:
    """The router's address on the nodes' network."""
    return two.lab.host("node1").address.network[ROUTER_HOST].compressed


def test_no_route_on_the_sources_node(two: Scene) -> None:
    route, default = block(two), f"default via {router(two)} dev eth0"
    store = f"{two.lab.plan.etcd_endpoint.partition('//')[2].partition(':')[0]}/32"
    plant = f"ip route add {store} via {router(two)}; ip route del {route}; ip route del default"
    undo = f"ip route add {default}; ip route del {store}; ip route add {route} || true"
    with two.planted(two.node1, plant, undo, felix=False):
        name, text = two.cause()
        assert (name, text[-6:]) == ("no-route", "@node1")
        assert two.server.address in text


def test_a_blackhole_takes_it(two: Scene) -> None:
    target = f"blackhole {two.server.address}/32"
    with two.planted(two.node1, f"ip route add {target}", f"ip route del {target}"):
        name, text = two.cause()
        assert (name, text[-6:]) == ("blackhole", "@node1")


def test_no_host_answers_for_the_next_hop(two: Scene) -> None:
    """The route leads to an address that no machine has: a node that is off."""
    gone = two.lab.host("node1").address.network[77].compressed
    route = f"{two.server.address}/32 via {gone} dev eth0"
    with two.planted(two.node1, f"ip route add {route}", f"ip route del {route}"):
        name, text = two.cause(within=5)
        assert (name, text[-6:]) == ("next-hop", "@node1")
        assert gone in text


def test_the_neighbour_entry_has_a_wrong_mac(two: Scene) -> None:
    node2 = two.lab.host("node2").address.ip
    mac = "02:00:00:00:00:99"
    plant = f"ip neigh replace {node2} lladdr {mac} dev eth0 nud permanent"
    # The session of BGP breaks soon as well; felix does not follow it here.
    with two.planted(two.node1, plant, f"ip neigh del {node2} dev eth0", felix=False):
        name, text = two.cause()
        assert (name, text[-6:]) == ("wrong-neighbour", "@node1")
        assert mac in text
        assert str(node2) in text


def test_the_reverse_path_filter_drops_it(two: Scene) -> None:
    """On the server's node the way back to the client leads elsewhere."""
    plant = (
        "ip link add elsewhere type bridge; ip link set elsewhere up;"
        f" ip route add {two.client.address}/32 dev elsewhere;"
        " sysctl -qw net.ipv4.conf.eth0.rp_filter=1"
    )
    undo = "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip link del elsewhere"
    with two.planted(two.node2, plant, undo, felix=False):
        name, text = two.cause()
        assert (name, text[-6:]) == ("reverse-path", "@node2")
        assert "eth0" in text


def test_the_next_link_takes_less_than_the_pod_sends(two: Scene) -> None:
    with two.planted(two.node1, "ip link set eth0 mtu 1280", "ip link set eth0 mtu 1500"):
        name, text = two.cause("--proto", "udp", "--size", "1400", port="8081")
        assert (name, text[-6:]) == ("mtu", "@node1")
        assert "1280" in text
        assert "1428 bytes" in text


def test_the_node_does_not_forward(two: Scene) -> None:
    plant, undo = (f"sysctl -qw net.ipv4.ip_forward={value}" for value in (0, 1))
    with two.planted(two.node1, plant, undo, felix=False):
        name, text = two.cause()
        assert (name, text[-6:]) == ("forwarding-off", "@node1")


def test_the_pods_interface_is_down_on_its_node(two: Scene) -> None:
    link = two.interface(two.server)
    route = f"{two.server.address}/32 dev {link} scope link proto 109 metric 1024"
    plant, undo = f"ip link set {link} down", f"ip link set {link} up; ip route add {route} || true"
    with two.planted(two.node2, plant, undo, felix=False):
        name, text = two.cause()
        assert (name, text[-6:]) == ("interface-down", "@node2")
        assert link in text


def test_a_router_on_the_way_prohibits_it(two: Scene) -> None:
    filtering = (
        "nft add table ip site;"
        " nft 'add chain ip site guard { type filter hook forward priority 0; }';"
        " nft add rule ip site guard tcp dport 8080 reject with icmp type admin-prohibited;"
        " sysctl -qw net.ipv4.conf.all.send_redirects=0"
    )
    way = f"{two.server.address}/32 via {router(two)} dev eth0"
    # Also what it bridges meets the router's filter, so that is removed first.
    with (
        two.planted(two.node1, f"ip route add {way}", f"ip route del {way}"),
        two.planted(two.lab.router, filtering, "nft delete table ip site"),
    ):
        name, text = two.cause()
        assert name == "prohibited"
        assert router(two) in text


def test_the_time_to_live_ends_on_the_way(two: Scene) -> None:
    plant, undo = (f"sysctl -qw net.ipv4.ip_default_ttl={value}" for value in (1, 64))
    with two.planted(two.node1, plant, undo, pod=two.client):
        name, text = two.cause()
        assert (name, text[-6:]) == ("ttl", "@node1")
        assert "node node1" in text


def test_an_address_that_nothing_has(two: Scene) -> None:
    free = two.server.address.rpartition(".")[0] + ".33"
    name, text = two.cause("client", free)
    assert name == "no-owner"
    assert free in text


def test_a_service_leads_to_an_endpoint_that_is_gone(two: Scene) -> None:
    """As a proxy that still knows a dead pod translates it."""
    gone = two.server.address.rpartition(".")[0] + ".34"
    plant = (
        "nft add table ip site;"
        " nft 'add chain ip site proxy { type nat hook prerouting priority -110; }';"
        f" nft add rule ip site proxy ip daddr 10.96.0.10 tcp dport 80 dnat to {gone}:8080"
    )
    with two.planted(two.node1, plant, "nft delete table ip site"):
        name, text = two.cause("client", "10.96.0.10", port="80")
        assert name == "dead-endpoint"
        assert f"10.96.0.10 is translated to {gone}" in text
