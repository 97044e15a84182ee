"""What our packed messages write is what pyroute2, written by others, reads from the kernel.

Our own readers share their tables of constants with our writers, so a number that is wrong in both
would show nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from pyroute2 import IPRoute

from linux import addresses, links, neighbours, routes, rules, vxlan
from linux.netlink import Socket
from linux.routes import NextHop, Route
from tests.support.netns import network_namespace

MAC, PEER_MAC = "ee:00:00:00:00:01", "ee:00:00:00:00:02"
FAMILIES = {4: 2, 6: 10}  # AF_INET, AF_INET6


@dataclass
class World:
    sock: Socket
    reader: IPRoute
    veth: int


@pytest.fixture
def world() -> Iterator[World]:
    with network_namespace("reader") as here, network_namespace("peer") as there, here.entered():
        here.run("ip", "link", "set", "lo", "up")
        here.run(
            "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", there.name
        )
        there.run("ip", "link", "set", "v0", "up")
        with Socket() as sock, IPRoute() as reader:
            index = links.by_name(links.dump(sock))["v0"].index
            settings = [links.set_mac(index, MAC), links.set_mtu(index, 1410)]
            settings += [links.set_alias(index, "muslin"), links.set_up(index)]
            for text in ("10.99.0.1/24", "fd99::1/64"):
                settings.append(addresses.add(index, ip_interface(text)))
            assert all(result.ok for result in sock.transact(settings))
            yield World(sock, reader, index)


def attributes(message: Any) -> Mapping[str, Any]:
    """The attributes of one message of pyroute2's, by name."""
    return dict(message["attrs"])


def test_a_link_and_its_addresses(world: World) -> None:
    (link,) = world.reader.get_links(world.veth)
    read = attributes(link)
    assert (read["IFLA_IFNAME"], read["IFLA_ADDRESS"], read["IFLA_MTU"]) == ("v0", MAC, 1410)
    assert read["IFLA_IFALIAS"] == "muslin"
    found = {
        (attributes(one)["IFA_ADDRESS"], one["prefixlen"])
        for one in world.reader.get_addr(index=world.veth)
    }
    assert {("10.99.0.1", 24), ("fd99::1", 64)} <= found


@pytest.mark.parametrize("version", [4, 6])
def test_routes(world: World, version: int) -> None:
    gateways = ("10.99.0.2", "10.99.0.3") if version == 4 else ("fd99::2", "fd99::3")
    base = ip_network("10.67.0.0/16" if version == 4 else "fd67::/64")
    nets = [str(net) for net in base.subnets(prefixlen_diff=8)]
    two = tuple(
        NextHop(ip_address(one), world.veth, weight=weight)
        for one, weight in zip(gateways, (1, 3), strict=True)
    )
    one = NextHop(ip_address(gateways[0]), world.veth)
    wanted = [
        Route(ip_network(nets[0]), (one,), protocol=80, metric=7, mtu=1300),
        Route(ip_network(nets[1]), two, protocol=80),
        Route(ip_network(nets[2]), type="blackhole", protocol=80, metric=9),
        Route(ip_network(nets[3]), (NextHop(None, world.veth),), protocol=80, table=1000),
    ]
    assert all(result.ok for result in world.sock.transact([routes.replace(one) for one in wanted]))
    read = [one for one in world.reader.get_routes(family=FAMILIES[version]) if one["proto"] == 80]
    found = {f"{attributes(one)['RTA_DST']}/{one['dst_len']}": one for one in read}
    assert set(found) == set(nets[:4])
    first, second, third, fourth = (found[net] for net in nets[:4])
    assert attributes(first)["RTA_GATEWAY"] == gateways[0]
    assert attributes(first)["RTA_PRIORITY"] == 7
    assert attributes(attributes(first)["RTA_METRICS"])["RTAX_MTU"] == 1300
    hops = attributes(second)["RTA_MULTIPATH"]
    assert [(attributes(hop)["RTA_GATEWAY"], hop["hops"]) for hop in hops] == [
        (gateways[0], 0),
        (gateways[1], 2),
    ]
    blackhole = 6  # RTN_BLACKHOLE of rtnetlink(7)
    assert (third["type"], attributes(third)["RTA_PRIORITY"]) == (blackhole, 9)
    assert attributes(fourth)["RTA_TABLE"] == 1000
    assert attributes(fourth)["RTA_OIF"] == world.veth


@pytest.mark.parametrize(("text", "version"), [("10.99.0.9", 4), ("fd99::9", 6)])
def test_a_permanent_neighbour_and_a_rule(world: World, text: str, version: int) -> None:
    address = ip_address(text)
    written = [
        neighbours.replace(world.veth, address, PEER_MAC),
        rules.from_source(address, 1007, 1000),
    ]
    assert all(result.ok for result in world.sock.transact(written))
    family, permanent = FAMILIES[version], 0x80  # NUD_PERMANENT
    entries = {
        attributes(one)["NDA_DST"]: (attributes(one)["NDA_LLADDR"], one["state"])
        for one in world.reader.get_neighbours(family=family, ifindex=world.veth)
        if one["state"] & permanent
    }
    assert entries == {text: (PEER_MAC, permanent)}
    found = world.reader.get_rules(family=family)
    (rule,) = (one for one in found if attributes(one).get("FRA_SRC") == text)
    read = attributes(rule)
    assert (read["FRA_TABLE"], read["FRA_PRIORITY"], rule["src_len"]) == (
        1007,
        1000,
        address.max_prefixlen,
    )


def test_a_vxlan_device(world: World) -> None:
    local = ip_address("10.99.0.1")
    device = vxlan.Vxlan(vni=4096, port=4789, local=local, parent=world.veth)
    world.sock.request(vxlan.create("vxlan.calico", device, mac=MAC, mtu=1360))
    (index,) = world.reader.link_lookup(ifname="vxlan.calico")
    (link,) = world.reader.get_links(index)
    info = attributes(attributes(link)["IFLA_LINKINFO"])
    assert info["IFLA_INFO_KIND"] == "vxlan"
    data = attributes(info["IFLA_INFO_DATA"])
    assert (data["IFLA_VXLAN_ID"], data["IFLA_VXLAN_PORT"]) == (4096, 4789)
    assert (data["IFLA_VXLAN_LOCAL"], data["IFLA_VXLAN_LINK"]) == (str(local), world.veth)
    assert data["IFLA_VXLAN_LEARNING"] == 0
    world.sock.request(vxlan.replace_forward(index, PEER_MAC, ip_address("10.99.0.7")))
    bridge = 7  # AF_BRIDGE
    entries = [
        (attributes(one)["NDA_LLADDR"], attributes(one)["NDA_DST"])
        for one in world.reader.get_neighbours(family=bridge)
        if one["ifindex"] == index
    ]
    assert (PEER_MAC, "10.99.0.7") in entries
