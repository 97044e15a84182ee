"""Which addresses of services a node announces (Calico's rules), and never more than configured."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.services import Endpoint, Ranges, ServiceView, announced, excluded, ranges
from tests.bgp.make import net, node, put, view_of

CLUSTER, EXTERNAL, BALANCER = "10.96.0.0/12", "192.0.2.0/24", "198.51.100.0/24"


def service(
    type: str = "LoadBalancer", local: bool = False, on: str = "", **more: Any
) -> ServiceView:
    """A service with an address of each kind, and ready endpoints on these nodes."""
    values: dict[str, Any] = {
        "cluster_ips": (ip_address("10.96.0.7"),),
        "external_ips": (ip_address("192.0.2.7"),),
        "load_balancer_ips": (ip_address("198.51.100.7"),),
        **more,
    }
    endpoints = frozenset(Endpoint(name, 4) for name in on.split())
    return ServiceView(type, local=local, endpoints=endpoints, **values)


def texts(node_name: str, ours: Ranges, *services: ServiceView) -> set[str]:
    return {str(each) for each in announced(node_name, ours, services)}


def configured(**more: Any) -> Ranges:
    view = view_of()
    spec = {
        "serviceClusterIPs": [{"cidr": CLUSTER}],
        "serviceExternalIPs": [{"cidr": EXTERNAL}],
        "serviceLoadBalancerIPs": [{"cidr": BALANCER}],
        **more,
    }
    put(view, "BGPConfiguration", "default", spec)
    return ranges(view)


@pytest.mark.promise("F-46")
def test_ranges_go_out_whole_from_every_node() -> None:
    assert texts("n1", configured()) == {CLUSTER, EXTERNAL, BALANCER}
    cluster_policy = service(on="n2")
    assert texts("n1", configured(), cluster_policy) == {CLUSTER, EXTERNAL, BALANCER}
    assert texts("n1", Ranges(), service(local=True, on="n1")) == set()


@pytest.mark.promise("F-47")
def test_local_policy_from_nodes_with_endpoints() -> None:
    ours, local = configured(), service(local=True, on="n1 n2")
    singles = {"10.96.0.7/32", "192.0.2.7/32", "198.51.100.7/32"}
    assert texts("n1", ours, local) - {CLUSTER, EXTERNAL, BALANCER} == singles
    assert texts("n3", ours, local) == {CLUSTER, EXTERNAL, BALANCER}
    assert singles <= texts("n2", ours, local, service(on="n3"))
    none = service("ExternalName", local=True, on="n1")
    assert texts("n1", ours, none) == {CLUSTER, EXTERNAL, BALANCER}


def test_entries_of_one_address() -> None:
    single = [{"cidr": "198.51.100.7/32"}]
    ours = configured(serviceLoadBalancerIPs=single)
    assert texts("n1", ours) == {CLUSTER, EXTERNAL}
    singles = {"10.96.0.7/32", "192.0.2.7/32", "198.51.100.7/32"}
    assert texts("n1", ours, service()) == {CLUSTER, EXTERNAL} | singles
    assert texts("n1", ours, service(sliced=False)) == {CLUSTER, EXTERNAL}
    assert texts("n1", ours, service(local=True, on="n2")) == {CLUSTER, EXTERNAL}


@pytest.mark.promise("ADV-8")
def test_no_range_makes_a_node_the_default_route() -> None:
    """Services of any address may be announced, one by one; and routers' default routes count."""
    ours = configured(serviceLoadBalancerIPs=[{"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}])
    assert texts("n1", ours) == {CLUSTER, EXTERNAL}
    assert net("0.0.0.0/0") not in ours.whole, "so a default route of a router is taken"
    assert "198.51.100.7/32" in texts("n1", ours, service(local=True, on="n1"))


def test_without_aggregation() -> None:
    ours = configured(serviceLoadBalancerAggregation="Disabled")
    assert texts("n1", ours, service()) == {CLUSTER, EXTERNAL}
    found = texts("n1", ours, service(on="n3"))
    assert found == {CLUSTER, EXTERNAL, "10.96.0.7/32", "192.0.2.7/32", "198.51.100.7/32"}
    assert ours.whole == {net(CLUSTER), net(EXTERNAL)}


def test_families_and_the_override() -> None:
    both = configured(serviceLoadBalancerIPs=[{"cidr": BALANCER}, {"cidr": "fd98::/112"}])
    six = ServiceView(
        "LoadBalancer",
        (ip_address("fd96::7"),),
        load_balancer_ips=(ip_address("fd98::7"),),
        local=True,
        endpoints=frozenset({Endpoint("n1", 6)}),
    )
    assert "fd98::7/128" in texts("n1", both, six)
    view = view_of()
    put(view, "BGPConfiguration", "default", {"serviceClusterIPs": [{"cidr": CLUSTER}]})
    assert ranges(view, "10.0.0.0/16, nonsense").cluster == (net("10.0.0.0/16"),)


def test_excluded_nodes() -> None:
    view = view_of()
    assert not excluded(view)
    node(view, 1, labels={"node.kubernetes.io/exclude-from-external-load-balancers": "true"})
    assert excluded(view)


addresses = st.integers(0, 2**32 - 1).map(ip_address)
services = st.builds(
    ServiceView,
    st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
    st.tuples(addresses),
    st.tuples(addresses),
    st.tuples(addresses),
    st.booleans(),
    st.frozensets(st.builds(Endpoint, st.sampled_from(["n1", "n2"]), st.just(4))),
)
small = st.sampled_from(["10.0.0.0/7", "192.0.2.1/32", "198.0.0.0/8", "0.0.0.0/1"]).map(net)


@pytest.mark.promise("ADV-8")
@given(
    st.lists(services, max_size=4),
    st.lists(small, max_size=2),
    st.lists(small, max_size=2),
    st.booleans(),
)
def test_nothing_outside_the_ranges(
    some: list[ServiceView], one: list[Any], other: list[Any], aggregate: bool
) -> None:
    """Whatever a Service claims as its address."""
    ours = Ranges(tuple(one), tuple(other), tuple(one), aggregate)
    for prefix in announced("n1", ours, some):
        assert any(prefix.subnet_of(each) for each in one + other)
