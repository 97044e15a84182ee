"""Defects that Calico v3.33 mended, by the number of the mend: ours are not of their kind.

What the others were about is tested elsewhere: #13118 (a tunnel's port as a source of masqueraded
traffic) in tests/felix/rules/test_tunnels.py, #13425 (a table that is deleted before it is written
anew) in tests/linux/test_nftables.py, `test_a_refused_chain_is_named_and_nothing_is_written`.
#13356 is about eBPF, which is not here; that a pod has its rules before its route is DPL-5.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from bgp.cluster.kubernetes import ServiceTable
from bgp.cluster.ownership import Ownership
from bgp.cluster.services import Ranges, announced
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.decide.terms import of_export
from bgp.routes.audiences import Manner, audiences
from bgp.routes.communities import Tags
from bgp.routes.export_policy import offers
from bgp.speaker.interface import Family
from felix.calc.graph import Calculator
from felix.calc.tunnels import TunnelSupport
from ipam.admin import overlap
from ipam.admin.tunnel_decision import Action, asking, decide
from ipam.admin.tunnels import VXLAN
from ipam.records.blocks import Allocation
from ipam.records.pools import Pool
from libcalico.kubernetes.names import Name
from libcalico.model import (
    AffinityKey,
    BlockAffinity,
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from tests.bgp.make import node, path, put, source, view_of
from tests.bgp.test_kubernetes import piece, web
from tests.felix.calc.policy.test_staged import staged
from tests.felix.policy_objects import (
    Packet,
    World,
    allow,
    deny,
    global_policy,
    namespace,
    pod,
    tier,
)


@pytest.mark.parametrize("modes", [{"vxlanMode": "Always"}, {"ipipMode": "Always"}, {}])
def test_13116_a_nodes_address_inside_a_block_is_no_pods(modes: dict[str, Any]) -> None:
    """No way of its own leads to it, into a tunnel least of all; and such a pool is refused."""
    calc = Calculator("me")
    for name, address, end in (
        ("me", "10.65.9.9/16", "10.65.200.1"),
        ("other", "10.65.1.1/16", "10.65.200.2"),
    ):
        bgp = NodeBGPSpec(ipv4Address=address, ipv4IPIPTunnelAddr=end)
        node = Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=bgp, ipv4VXLANTunnelAddr=end))
        calc.update(ResourceKey("Node", name), node)
    cidr = ip_network("10.65.1.0/24")
    pool = IPPool(
        metadata=Metadata(name="p"), spec=IPPoolSpec(cidr=str(cidr), blockSize=24, **modes)
    )
    calc.update(ResourceKey("IPPool", "p"), pool)
    calc.update(AffinityKey("other", cidr), BlockAffinity())
    calc.in_sync = True
    for told in (True, False):
        calc.cluster.settle(TunnelSupport(told=told))
        assert (cidr in calc.cluster.ways) is (bool(modes) or not told)
        assert ip_network("10.65.1.1/32") not in calc.cluster.ways
    assert calc.facts.host_members(4) == {"10.65.9.9", "10.65.1.1"}
    taken = overlap.Taken(ip_network("10.65.1.1/32"), "Node(other)")
    assert overlap.problems(pool, overlap.Facts(hosts=(taken,)))


@pytest.mark.parametrize("local", [True, False])
def test_13246_an_unready_endpoint_announces_no_service(local: bool) -> None:
    ours = Ranges(load_balancer=(ip_network("198.51.100.0/24"),), aggregate=False)
    table, key, name = ServiceTable(), Name("ns", "web"), Name("ns", "s1")
    for ready, wanted in ((False, set()), (True, {"198.51.100.7/32"}), (False, set())):
        table.service(
            key,
            web(
                type="LoadBalancer",
                clusterIP="10.96.0.7",
                externalTrafficPolicy="Local" if local else "Cluster",
            ),
        )
        table.slice(name, piece(("n1", ready)))
        found = table.view(key)
        assert found is not None
        assert {str(each) for each in announced("n1", ours, [found])} == wanted
    # Another slice of the service still has a ready one.
    table.slice(Name("ns", "s2"), piece(("n1", True)))
    found = table.view(key)
    assert found is not None
    assert announced("n1", ours, [found])


@pytest.mark.parametrize("address", ["198.51.100.7/32", "203.0.113.7/32"])
def test_13413_a_reflector_passes_on_addresses_of_services(address: str) -> None:
    """External ones as those of load balancers, from the configured ranges."""
    view = view_of()
    node(view, 1, routeReflectorClusterID="1.0.0.1")
    ranges = {
        "serviceExternalIPs": [{"cidr": "203.0.113.0/24"}],
        "serviceLoadBalancerIPs": [{"cidr": "198.51.100.0/24"}],
    }
    put(view, "BGPConfiguration", "default", ranges)
    terms = of_export(view, (), {}, Tags(), lambda _: "", MakeBeforeBreak())
    sessions = [(ip_address("10.0.0.3"), Manner((Family.IPV4,), internal=True, client=True))]
    terms = replace(terms, audiences=audiences(sessions))
    sent = path(source(2, client=True))
    assert [str(route.prefix) for route in offers(ip_network(address), None, sent, terms)] == [
        address
    ]
    assert offers(ip_network("192.0.2.7/32"), None, sent, terms) == ()


@pytest.mark.parametrize("tunnel", ["vxlanMode", "ipipMode", ""])
def test_13844_a_borrowed_address_leads_to_its_borrower(tunnel: str) -> None:
    """Felix's way and what bgp believes; the block leads to its owner."""
    calc, cidr = Calculator("me"), ip_network("10.65.1.0/26")
    lent = ip_network("10.65.1.3/32")
    for number, name in enumerate(("me", "owner", "borrower"), 1):
        bgp = NodeBGPSpec(
            ipv4Address=f"10.99.{number}.1/24", ipv4IPIPTunnelAddr=f"10.65.9.{number}"
        )
        spec = NodeSpec(bgp=bgp, ipv4VXLANTunnelAddr=f"10.65.9.{number}")
        calc.update(ResourceKey("Node", name), Node(metadata=Metadata(name=name), spec=spec))
    modes: dict[str, Any] = {tunnel: "Always"} if tunnel else {}
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr="10.65.0.0/16", **modes))
    calc.update(ResourceKey("IPPool", "p"), pool)
    calc.update(AffinityKey("owner", cidr), BlockAffinity())
    key = ResourceKey("WorkloadEndpoint", "borrower-k8s-web-eth0", "default")
    pod = WorkloadEndpointSpec(node="borrower", interfaceName="cali1", ipNetworks=[str(lent)])
    metadata = Metadata(name=key.name, namespace="default")
    calc.update(key, WorkloadEndpoint(metadata=metadata, spec=pod))
    calc.in_sync = True
    calc.cluster.settle(TunnelSupport())
    vias = {net: str(way.via) for net, way in calc.cluster.ways.items() if net in (cidr, lent)}
    ends = {"vxlanMode": "10.65.9.{}", "ipipMode": "10.99.{}.1"}
    wanted = {cidr: ends[tunnel].format(2), lent: ends[tunnel].format(3)} if tunnel else {}
    assert vias == wanted
    ownership = Ownership()
    ownership.claim("owner", cidr, "confirmed")
    ownership.lend(cidr, calc.blocks.borrowed[cidr])
    assert ownership.owners(lent) == {"borrower"}
    assert ownership.owners(cidr) == {"owner"}


def test_13953_a_tunnels_address_follows_the_nodes_labels() -> None:
    def of(zone: str) -> list[str]:
        node = Node(metadata=Metadata(name="n1", labels={"zone": zone}))
        return [pool.name for pool in asking(VXLAN, pools, node).open]

    pools = [
        Pool(
            zone,
            ip_network(f"10.{number}.0.0/16"),
            26,
            vxlan=True,
            node_selector=f"zone == '{zone}'",
        )
        for number, zone in enumerate("ab")
    ]
    assert (of("a"), of("b"), of("c")) == (["a"], ["b"], [])
    held = Allocation(ip_address("10.0.0.1"), VXLAN.handle_id("n1"), VXLAN.attributes("n1"), 1)
    for zone, wanted in (("a", Action.KEEP), ("b", Action.RENEW), ("c", Action.CLEAR)):
        node = Node(metadata=Metadata(name="n1", labels={"zone": zone}))
        assert decide(VXLAN, "n1", "10.0.0.1", held, asking(VXLAN, pools, node)) is wanted


@pytest.mark.parametrize("number", [13410, 13416])
def test_13410_13416_a_staged_policy_is_no_verdict(number: int) -> None:
    """Neither its rules nor, where a tier has staged ones only, the end of its tier."""
    world = World(namespace("default"), pod("a", "10.0.0.1", {"app": "a"}), tier("t", 5, "Deny"))
    packet = Packet("10.0.0.9", "10.0.0.1")
    world.put(global_policy("allow", selector="all()", order=10, ingress=[allow()]))
    assert world.into("a", packet)
    rules = [deny()] if number == 13416 else []
    world.put(staged(global_policy("t.deny", tier="t", selector="all()", ingress=rules)))
    assert world.into("a", packet)
