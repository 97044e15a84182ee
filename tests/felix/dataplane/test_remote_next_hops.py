"""Ways become hops on the links of now, and others when links change."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network

from felix.calc.blocks import BlockFacts
from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.nodes import NodeFacts, Vtep
from felix.calc.pools import Pool
from felix.calc.tunnels import TunnelSupport
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.remote_next_hops import RemoteNextHops
from linux.addresses import Address
from linux.links import Link
from linux.monitor.events import LinkChanged
from linux.prefixes import pack
from linux.routes import NextHop

POOL, BLOCK = ip_network("10.65.0.0/16"), ip_network("10.65.1.0/26")
LENT = ip_network("10.65.1.9/32")


def link(index: int, name: str) -> Link:
    return Link(index, name, "", 1500, True, True, True, False, 6, "", 0, 0, None, 0, "", b"", b"")


def facts(number: int) -> NodeFacts:
    own, tunnel = ip_address(f"10.99.{number}.1"), ip_address(f"10.65.{number}.9")
    vtep = Vtep(own, tunnel, f"66:00:00:00:00:0{number}")
    network = (ip_network(f"10.99.{number}.0/24"),)
    return NodeFacts(frozenset({own}), network, tunnel, (vtep,))


def test_links_come_change_and_go() -> None:
    nodes = {"me": facts(7), "a": facts(1)}
    pools = {"p": Pool(POOL, False, vxlan_mode="Always")}
    user = frozenset({(LENT.network_address, "a")})
    blocks = {BLOCK: BlockFacts("host:b", user)}
    cluster = ClusterRoutes("me", blocks, nodes, pools)
    cluster.pools_changed()
    view = KernelView(("cali",))
    eth = Address(2, ip_interface("10.99.7.1/24"))
    view.replace_links([link(2, "eth0")], [eth])
    ways = RemoteNextHops()
    assert not ways.settle(cluster, TunnelSupport(), view, nodes["me"], {}), (
        "there is no device yet"
    )
    view.absorb([LinkChanged(link(5, "vxlan.calico"), False)])
    lent = pack(LENT)
    assert ways.settle(cluster, TunnelSupport(), view, nodes["me"], {}) == [lent]
    assert ways.hops == {lent: (NextHop(None, 5),)}, "the end of the tunnel itself"
    blocks[BLOCK] = BlockFacts("host:a", user)
    cluster.block_changed(BLOCK)
    assert ways.settle(cluster, TunnelSupport(), view, nodes["me"], {}) == [pack(BLOCK)]
    assert ways.hops[pack(BLOCK)] == (NextHop(ip_address("10.65.1.9"), 5, onlink=True),)
    assert not ways.settle(cluster, TunnelSupport(), view, nodes["me"], {})
    view.absorb([LinkChanged(link(5, "vxlan.calico"), True)])
    view.absorb([LinkChanged(link(6, "vxlan.calico"), False)])
    assert set(ways.settle(cluster, TunnelSupport(), view, nodes["me"], {})) == {
        pack(BLOCK),
        lent,
    }
    assert {hop.oif for hops in ways.hops.values() for hop in hops} == {6}
    pools["p"] = Pool(POOL, False, "Always")
    cluster.pools_changed()
    assert set(ways.settle(cluster, TunnelSupport(), view, nodes["me"], {})) == {
        pack(BLOCK),
        lent,
    }
    assert ways.hops == {}, "no tunl0 here"
    view.absorb([LinkChanged(link(3, "tunl0"), False)])
    ways.settle(cluster, TunnelSupport(), view, nodes["me"], {})
    assert ways.hops[lent] == (NextHop(ip_address("10.99.1.1"), 3, onlink=True),)
    del blocks[BLOCK]
    cluster.block_changed(BLOCK)
    ways.settle(cluster, TunnelSupport(), view, nodes["me"], {})
    assert ways.hops.keys() == {lent}, "the end of the tunnel, for as long as there is one"


def test_an_ipv6_end_has_a_route_of_its_own_before_any_that_goes_over_it() -> None:
    end = Vtep(ip_address("fd99::2"), ip_address("fd65::41"), "66:00:00:00:00:02")
    block = ip_network("fd65::40/122")
    me = NodeFacts(
        frozenset({ip_address("fd99::1")}),
        (),
        None,
        (Vtep(ip_address("fd99::1"), ip_address("fd65::1"), "66:00:00:00:00:01"),),
    )
    nodes = {"me": me, "a": NodeFacts(frozenset({end.node}), (), None, (end,))}
    pools = {"p": Pool(ip_network("fd65::/48"), False, vxlan_mode="Always")}
    blocks = {block: BlockFacts("host:a", frozenset())}
    cluster = ClusterRoutes("me", blocks, nodes, pools)
    cluster.pools_changed()
    view = KernelView(("cali",))
    view.absorb([LinkChanged(link(6, "vxlan-v6.calico"), False)])
    ways, ends = RemoteNextHops(), {"a": end}
    host = pack(ip_network("fd65::41/128"))
    assert ways.settle(cluster, TunnelSupport(), view, me, ends) == [host, pack(block)]
    assert ways.hops[host] == (NextHop(None, 6),)
    assert not ways.settle(cluster, TunnelSupport(), view, me, ends)
    blocks[block] = BlockFacts("host:b", frozenset({(end.address, "a")}))
    cluster.block_changed(block)
    assert ways.settle(cluster, TunnelSupport(), view, me, ends) == [pack(block)], (
        "the end as a way"
    )
    assert ways.settle(cluster, TunnelSupport(), view, me, {}) == []
    view.absorb([LinkChanged(link(6, "vxlan-v6.calico"), True)])
    assert ways.settle(cluster, TunnelSupport(), view, me, {}) == [host]
    assert ways.hops == {}
