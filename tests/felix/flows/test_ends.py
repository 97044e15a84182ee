"""FEN-1: what an address is called in a flow."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from felix.calc.graph import Calculator
from felix.flows.ends import Ends, aggregated
from flows.record import End, EndKind
from libcalico.model import Metadata, Node, ResourceKey
from libcalico.model.resources.node import NodeBGPSpec, NodeSpec
from tests.felix.policy_objects import Object, global_network_set, host, namespace, network_set, pod


def calculator(*objects: Object) -> Calculator:
    calc = Calculator("me")
    calc.in_sync = True
    for key, value in objects:
        calc.update(key, value)
    calc.policy.flush()
    return calc


def known(calc: Calculator, address: str, ends: Ends | None = None) -> Any:
    return (ends or Ends(calc)).known(ip_address(address).packed)


@pytest.mark.parametrize(
    ("pod_name", "labels", "name"),
    [
        ("web-7d4b9c-x2x7k", (), "web-7d4b9c-*"),
        ("agent-bcdfg", (), "agent-*"),
        ("db-0", ("statefulset.kubernetes.io/pod-name=db-0",), "db-*"),
        ("db-0", (), "db-0"),
        ("web-alone", (), "web-alone"),
        ("alone", (), "alone"),
        ("web-7d4b9c-x2x7", (), "web-7d4b9c-x2x7"),
    ],
)
def test_pods_of_a_controller_have_one_name(
    pod_name: str, labels: tuple[str, ...], name: str
) -> None:
    assert aggregated(pod_name, labels) == name


def test_pods_here_and_elsewhere_are_called_alike() -> None:
    calc = calculator(
        namespace("default", team="a"),
        pod("web-x2x7k", ["10.0.0.1", "fd00::1"], {"app": "web"}),
        pod("web-bcdfg", "10.0.0.2", {"app": "web"}, node="other"),
    )
    here, there, six = (known(calc, each) for each in ("10.0.0.1", "10.0.0.2", "fd00::1"))
    web = End(EndKind.WORKLOAD, "web-*", "default")
    assert here.end == there.end == six.end == web
    assert here.endpoint is not None
    assert there.endpoint is None
    assert "app=web" in here.labels
    assert "projectcalico.org/namespace=default" in there.labels
    assert not any(label.startswith("pcns.") for label in here.labels), (
        "inherited ones are not its own"
    )


def test_an_address_that_nothing_has_is_private_or_public() -> None:
    calc = calculator()
    for address, name in (
        ("10.1.2.3", "pvt"), ("172.31.0.1", "pvt"), ("192.168.7.7", "pvt"), ("fd12::1", "pvt"),
        ("172.32.0.1", "pub"), ("8.8.8.8", "pub"), ("2001:db8::1", "pub"),
    ):  # fmt: skip
        assert known(calc, address).end == End(EndKind.NETWORK, name)


def test_of_network_sets_the_narrowest_counts_and_an_endpoint_goes_before() -> None:
    calc = calculator(
        pod("a", "10.0.0.1"),
        network_set("narrow", ["10.0.0.0/24"], {"x": "1"}),
        global_network_set("wide", ["10.0.0.0/8", "8.8.8.8"], {}),
    )
    assert known(calc, "10.0.0.1").end.name == "a"
    narrow = known(calc, "10.0.0.2")
    assert narrow.end == End(EndKind.NETWORK_SET, "narrow", "default")
    assert "x=1" in narrow.labels
    assert known(calc, "10.9.0.2").end == End(EndKind.NETWORK_SET, "wide")
    assert known(calc, "8.8.8.8").end == End(EndKind.NETWORK_SET, "wide")


def test_hosts_are_called_by_their_node() -> None:
    node = Node(
        metadata=Metadata(name="n7"), spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address="192.0.2.7/24"))
    )
    calc = calculator((ResourceKey("Node", "n7"), node), host("eth", addresses=["192.0.2.8"]))
    assert known(calc, "192.0.2.7").end == End(EndKind.HOST, "n7")
    assert known(calc, "192.0.2.8").end.kind is EndKind.HOST


def test_an_address_that_has_another_owner_is_looked_up_anew() -> None:
    calc = calculator(pod("a", "10.0.0.1"))
    ends = Ends(calc)
    assert known(calc, "10.0.0.1", ends).end.name == "a"
    key, _ = pod("a", "10.0.0.1")
    calc.update(key, None)
    calc.update(*pod("b", "10.0.0.1"))
    assert known(calc, "10.0.0.1", ends).end.name == "a", "until it is told to forget"
    ends.forget()
    assert known(calc, "10.0.0.1", ends).end.name == "b"
