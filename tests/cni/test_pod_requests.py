"""What a pod asks for, from annotations, call and configuration."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import pytest

from cni.pods.endpoint_requests import NOTHING, EndpointRequest, check_families, endpoint_request
from cni.pods.pod_requests import PREFIX, AddressRequest, address_request
from cni.pods.pod_source import PodFacts
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
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
        ({"ipAddrsNoIpam": ["10.0.0.1"]}, "feature is not enabled: ip_addrs_no_ipam"),
        ({"ipAddrsNoIpam": []}, "feature is not enabled: ip_addrs_no_ipam"),
    ],
)
@pytest.mark.promise("ADV-2")
def test_what_cannot_be_honoured_is_named(annotations: dict[str, Any], part: str) -> None:
    message = refusal(facts(**annotations))
    assert PREFIX + next(iter(annotations)) in message
    assert part in message


def test_a_call_asks_for_one_address_of_a_family() -> None:
    assert "at most one of each family" in refusal(facts(), "IP=10.0.0.1,10.0.0.2")
    assert "IP must be an IP address" in refusal(facts(), "IP=ten")


def test_no_family_at_all_is_a_fault_of_the_configuration() -> None:
    assert "both false" in refusal(facts(), ipam={"type": "calico-ipam", "assign_ipv4": "false"})


ALLOWED: dict[str, Any] = {"feature_control": {"floating_ips": True, "ip_addrs_no_ipam": True}}
MAC = "7e:11:22:33:44:55"


def text(**annotations: str) -> PodFacts:
    return PodFacts(annotations={PREFIX + key: value for key, value in annotations.items()})


def wish_refused(pod: PodFacts, **config: Any) -> str:
    with pytest.raises(CNIError) as caught:
        endpoint_request(call(**config), pod)
    assert caught.value.code == 7
    return caught.value.msg


def test_what_an_administrator_allows_is_asked_for() -> None:
    four, six = ip_address("192.0.2.7"), ip_address("2001:db8::7")
    both = facts(ipAddrsNoIpam=[str(four), str(six)])
    wanted = asked(both, "IP=10.65.0.1", **ALLOWED)
    assert wanted == AddressRequest((4, 6), fixed=(four, six), unmanaged=True)
    pod = facts(floatingIPs=[str(four)], allowedSourcePrefixes=["10.9.1.1/16", "fd09::/64"])
    pod.annotations[PREFIX + "hwAddr"] = "7E-11-22-33-44-55"  # type: ignore[index]
    sources = ("10.9.0.0/16", "fd09::/64")
    assert endpoint_request(call(**ALLOWED), pod) == EndpointRequest(MAC, (four,), sources)


def test_limits_that_cannot_be_read_are_said_and_the_pod_runs() -> None:
    qos = "qos.projectcalico.org/"
    annotations = {f"{qos}dscp": "AF44", f"{qos}egressBandwidth": "1M"}
    got = endpoint_request(call(), PodFacts(annotations=annotations))
    assert got.controls is not None
    assert (got.controls.egressBandwidth, got.controls.dscp) == (1_000_000, None)
    assert "qos.projectcalico.org/dscp: 'AF44'" in got.complaints[0]


def test_most_pods_ask_for_nothing_more() -> None:
    assert endpoint_request(call(), facts(ipv4pools=["web"])) is NOTHING


@pytest.mark.promise("ADV-2")
@pytest.mark.parametrize("allowed", [{}, {"floating_ips": False}, {"ip_addrs_no_ipam": True}])
def test_floating_addresses_are_an_administrators_to_allow(allowed: dict[str, bool]) -> None:
    for value in (["192.0.2.7"], [], "none"):
        message = wish_refused(facts(floatingIPs=value), feature_control=allowed)
        assert PREFIX + "floatingIPs" in message
        assert "feature is not enabled: floating_ips" in message


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("floatingIPs", '["127.0.0.1"]', "unicast"),
        ("floatingIPs", '["224.0.0.5"]', "unicast"),
        ("floatingIPs", '["0.0.0.0"]', "unicast"),
        ("floatingIPs", '["255.255.255.255"]', "unicast"),
        ("floatingIPs", '["fe80::1"]', "unicast"),
        ("floatingIPs", '["192.0.2.7", "192.0.2.7"]', "at most once"),
        ("floatingIPs", '["192.0.2.0/24"]', "unicast"),
        ("floatingIPs", "192.0.2.7", "JSON list"),
        ("allowedSourcePrefixes", '["10.0.0.0/33"]', "CIDR"),
        ("allowedSourcePrefixes", '"10.0.0.0/8"', "JSON list"),
        ("hwAddr", "01:00:5e:00:00:01", "a MAC address"),
        ("hwAddr", "00:00:00:00:00:00", "a MAC address"),
        ("hwAddr", "7e:11", "a MAC address"),
        ("hwAddr", "", "a MAC address"),
        ("hwAddr", "ee:ee:ee:ee:ee:ee", "the host's end"),
    ],
)
def test_a_wish_that_cannot_be_honoured_is_named(name: str, value: str, part: str) -> None:
    message = wish_refused(text(**{name: value}), **ALLOWED)
    assert f"annotation {PREFIX}{name}" in message
    assert part in message


@pytest.mark.parametrize("bad", ["127.0.0.1", "224.0.0.1", "::", "ff02::1", "169.254.1.1"])
def test_an_address_without_ipam_is_an_address_of_a_host(bad: str) -> None:
    assert "unicast" in refusal(facts(ipAddrsNoIpam=[bad]), **ALLOWED)


def test_fixed_addresses_come_from_pools_or_not_from_both() -> None:
    pod = facts(ipAddrs=["10.65.0.9"], ipAddrsNoIpam=["10.65.0.9"])
    assert "exclude each other" in refusal(pod, **ALLOWED)


def test_a_floating_address_needs_one_of_its_family() -> None:
    requested = EndpointRequest(floating=(ip_address("2001:db8::7"),))
    check_families(requested, AddressRequest((4, 6)))
    with pytest.raises(CNIError, match="IPv6"):
        check_families(requested, AddressRequest((4,)))
