"""Endpoints and network sets, reduced to what policy needs."""

from __future__ import annotations

import pytest

from felix.calc.endpoints import from_resource
from felix.calc.labels import NamedPort, protocol_number
from felix.calc.sets.items import of_local, of_network_set, of_remote, read_network
from tests.felix.policy_objects import global_network_set, network_set, pod


def test_the_labels_that_calico_adds_win_over_what_the_pod_says() -> None:
    claims = {"projectcalico.org/namespace": "kube-system", "app": "a",
              "projectcalico.org/serviceaccount": "admin"}  # fmt: skip
    key, value = pod("p", "10.0.0.1", claims, account="web")
    item, trouble = of_remote(key, value)
    assert not trouble
    assert dict(item.labels) == {
        "app": "a",
        "projectcalico.org/namespace": "default",
        "projectcalico.org/orchestrator": "k8s",
        "projectcalico.org/serviceaccount": "web",
    }
    assert of_local(from_resource(key, value)) == item


def test_a_service_account_of_63_characters_is_no_label() -> None:
    item, _ = of_remote(*pod("p", "10.0.0.1", account="a" * 63))
    assert "projectcalico.org/serviceaccount" not in dict(item.labels)
    item, _ = of_remote(*pod("p", "10.0.0.1", account="a" * 62))
    assert dict(item.labels)["projectcalico.org/serviceaccount"] == "a" * 62


def test_only_host_networks_of_an_endpoint_count_and_the_rest_is_named() -> None:
    item, trouble = of_remote(*pod("p", ["10.0.0.1", "10.1.0.0/16", "junk/32", "FD00:0::1"]))
    assert item.members == ("10.0.0.1", "fd00::1")
    assert "'junk/32'" in trouble


def test_named_ports_need_a_name_a_number_and_a_protocol_with_ports() -> None:
    ports = {"http": ("TCP", 80), "dns": ("udp", 53), "x": ("ICMP", 7), "zero": ("TCP", 0),
             "": ("TCP", 9), "sig": ("132", 2905)}  # fmt: skip
    item, _ = of_remote(*pod("p", ["10.0.0.1", "fd00::1"], ports=ports))
    assert item.ports == (
        NamedPort("http", "tcp", 80),
        NamedPort("dns", "udp", 53),
        NamedPort("sig", "sctp", 2905),
    )
    assert item.contribution(("tcp", "http")) == {"10.0.0.1,tcp:80", "fd00::1,tcp:80"}
    assert item.contribution(("udp", "http")) == frozenset()


def test_nets_of_a_set_lose_host_bits_and_doubles_and_everything_is_two_halves() -> None:
    nets = ["10.0.0.7/24", "10.0.0.0/24", "10.0.0.9/32", "10.0.0.9", "0.0.0.0/0", "::/0"]
    item, trouble = of_network_set(*network_set("s", nets, {"a": "b"}))
    assert not trouble
    assert item.members == (
        "10.0.0.0/24", "10.0.0.9", "0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"
    )  # fmt: skip
    assert item.profiles == ("kns.default",)


def test_a_global_set_lies_in_no_namespace_whatever_it_says() -> None:
    item, _ = of_network_set(*global_network_set("s", [], {"projectcalico.org/namespace": "x"}))
    assert item.labels == ()
    assert item.profiles == ()


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0/255.0.0.0", "10.0.0.0/-1", "fe80::1%eth0", "10.0.0.0/33", 7, None]
)
def test_what_is_no_network_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        read_network(text)


@pytest.mark.parametrize(
    ("protocol", "number"),
    [("TCP", 6), ("udp", 17), ("ICMPv6", 58), (132, 132), ("quic", None), (0, None), (256, None)],
)
def test_protocols_have_numbers(protocol: int | str, number: int | None) -> None:
    assert protocol_number(protocol) == number
