"""What a pod asks for, from annotations, call and configuration."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import pytest

from cni.errors import CNIError
from cni.pod_requests import PREFIX, AddressRequest, address_request
from cni.pod_source import PodFacts
from cni.request import Request, parse_request
from tests.cni.world import network_config


def call(args: str = "", **config: Any) -> Request:
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": args,
    }
    return parse_request("calico", env, json.dumps(network_config(config)))


def facts(namespace: dict[str, Any] | None = None, **annotations: Any) -> PodFacts:
    def written(values: dict[str, Any]) -> dict[str, str]:
        return {PREFIX + key: json.dumps(value) for key, value in values.items()}

    return PodFacts(
        annotations=written(annotations), namespace_annotations=written(namespace or {})
    )


def asked(pod: PodFacts, args: str = "", **config: Any) -> AddressRequest:
    return address_request(call(args, **config), pod)


def refusal(pod: PodFacts, args: str = "", **config: Any) -> str:
    with pytest.raises(CNIError) as caught:
        asked(pod, args, **config)
    return caught.value.msg


def test_the_configuration_is_the_default() -> None:
    ipam = {"type": "calico-ipam", "assign_ipv6": "true", "ipv4_pools": ["web"]}
    assert asked(facts(), ipam=ipam) == AddressRequest((4, 6), {4: ("web",), 6: ()})


def test_the_pod_beats_its_namespace_and_that_the_configuration() -> None:
    ipam = {"type": "calico-ipam", "ipv4_pools": ["of-configuration"]}
    of_namespace = {"ipv4pools": ["of-namespace"], "ipFamilies": ["IPv6"]}
    wanted = asked(facts(of_namespace), ipam=ipam)
    assert wanted == AddressRequest((6,), {4: ("of-namespace",), 6: ()})
    wanted = asked(facts(of_namespace, ipv4pools=["of-pod"], ipFamilies=["IPv6", "IPv4"]))
    assert wanted == AddressRequest((4, 6), {4: ("of-pod",), 6: ()})


def test_fixed_addresses_of_the_pod_beat_those_of_the_call() -> None:
    four, six = ip_address("10.65.0.9"), ip_address("fd65::9")
    assert asked(facts(ipAddrs=[str(four), str(six)]), "IP=10.65.0.1").fixed == (four, six)
    assert asked(facts(), "IP=10.65.0.9/24").fixed == (four,)
    assert asked(facts(), "IP=10.65.0.1", runtimeConfig={"ips": ["10.65.0.9"]}).fixed == (four,)


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        ({"ipv4pools": "web"}, "JSON list of strings"),
        ({"ipv4pools": [1]}, "JSON list of strings"),
        ({"ipFamilies": ["IPv5"]}, "IPv4 and IPv6"),
        ({"ipFamilies": ["IPv4", "IPv4"]}, "each at most once"),
        ({"ipAddrs": ["10.0.0"]}, "list of IP addresses"),
        ({"ipAddrs": ["10.0.0.1", "10.0.0.2"]}, "at most one of each family"),
        ({"ipAddrsNoIpam": ["10.0.0.1"]}, "not served by this release"),
        ({"floatingIPs": ["10.0.0.1"]}, "not served by this release"),
    ],
)
def test_what_cannot_be_honoured_is_named(annotations: dict[str, Any], part: str) -> None:
    message = refusal(facts(**annotations))
    assert PREFIX + next(iter(annotations)) in message
    assert part in message


def test_a_call_asks_for_one_address_of_a_family() -> None:
    assert "at most one of each family" in refusal(facts(), "IP=10.0.0.1,10.0.0.2")
    assert "IP must be an IP address" in refusal(facts(), "IP=ten")


def test_no_family_at_all_is_a_fault_of_the_configuration() -> None:
    assert "both false" in refusal(facts(), ipam={"type": "calico-ipam", "assign_ipv4": "false"})
