"""The network configuration: defaults, both spellings, what is refused and how."""

from __future__ import annotations

from typing import Any

import pytest

from cni.request.config import IPAM, Attachment, NetworkConfig, parse_config
from cni.request.errors import CNIError

NAME = {"name": "net", "cniVersion": "1.1.0"}


def parse(**members: Any) -> NetworkConfig:
    return parse_config(NAME | members)


def test_defaults() -> None:
    config = parse()
    assert config.ipam == IPAM("", True, False, (), ())
    assert (config.mtu, config.policy_setup_timeout) == (0, 30.0)
    assert config.prev_result is None
    assert config.valid_attachments is None


def test_the_first_generation_file_is_understood() -> None:
    config = parse_config(
        {
            "name": "k8s-pod-network",
            "cniVersion": "0.1.0",
            "type": "calico",
            "etcd_endpoints": "https://192.0.2.1:2379",
            "log_level": "info",
            "mtu": 1500,
            "ipam": {"type": "calico-ipam"},
            "policy": {"type": "k8s", "k8s_api_root": "https://10.233.0.1:443"},
            "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"},
        }
    )
    assert (config.mtu, config.policy_type, config.ipam.type) == (1500, "k8s", "calico-ipam")
    assert config.result_version == "0.1.0"


def test_ipam_switches_are_strings_or_booleans() -> None:
    for yes, no in [("true", "false"), (True, False), ("True", "FALSE")]:
        ipam = parse(ipam={"assign_ipv4": no, "assign_ipv6": yes}).ipam
        assert (ipam.assign_ipv4, ipam.assign_ipv6) == (False, True)


def test_runtime_config_is_read_without_regard_to_case() -> None:
    annotations = {"cni.projectcalico.org/ipAddrs": "[]"}
    for ips, mac in [("ips", "mac"), ("IPs", "Mac")]:
        config = parse(
            runtimeConfig={
                ips: ["10.0.0.1"],
                mac: "7E-11-22-33-44-55",
                "io.kubernetes.cri.pod-annotations": annotations,
            }
        )
        assert config.requested_ips == ("10.0.0.1",)
        assert config.mac == "7e:11:22:33:44:55"
        assert config.annotations == annotations


def test_labels_of_the_conventions() -> None:
    labels = [{"key": "app", "value": "web"}, {"key": 5}, "odd"]
    assert parse(args={"cni": {"labels": labels}}).labels == {"app": "web"}
    assert parse(args={"cni": {"labels": 5}}).labels == {}
    assert parse(args={"cni": 5}).labels == parse(args=[1]).labels == {}


def test_null_means_absent() -> None:
    keys = ["ipam", "args", "runtimeConfig", "prevResult", "policy", "container_settings", "mtu"]
    assert parse_config(NAME | dict.fromkeys(keys)) == parse_config(NAME | dict.fromkeys(keys))
    assert parse_config(NAME | dict.fromkeys(keys)).prev_result is None
    assert parse(ipam={"ipv4_pools": None, "assign_ipv4": None}).ipam == IPAM()
    assert parse(runtimeConfig={"ips": None, "mac": None}).requested_ips == ()


def test_whole_numbers_may_arrive_as_floats() -> None:
    assert parse(mtu=1500.0).mtu == 1500


BAD: list[tuple[str, dict[str, Any]]] = [
    ("mtu", {"mtu": "abc"}),
    ("mtu", {"mtu": -1}),
    ("mtu", {"mtu": 65536}),
    ("mtu", {"mtu": True}),
    ("ipam", {"ipam": []}),
    ("ipam.type", {"ipam": {"type": 5}}),
    ("ipam.assign_ipv4", {"ipam": {"assign_ipv4": "maybe"}}),
    ("ipam.ipv4_pools", {"ipam": {"ipv4_pools": "10.0.0.0/8"}}),
    ("ipam.ipv6_pools", {"ipam": {"ipv6_pools": [5]}}),
    ("runtimeConfig.ips", {"runtimeConfig": {"ips": ["x"]}}),
    ("runtimeConfig.mac", {"runtimeConfig": {"mac": "7e:11"}}),
    ("policy_setup_timeout_seconds", {"policy_setup_timeout_seconds": -1}),
    ("prevResult", {"prevResult": "x"}),
    ("container_settings", {"container_settings": 1}),
]


@pytest.mark.parametrize(("where", "bad"), BAD, ids=str)
def test_a_value_that_cannot_be_honoured_is_named(where: str, bad: dict[str, Any]) -> None:
    with pytest.raises(CNIError) as caught:
        parse_config(NAME | bad)
    assert caught.value.code == 7
    assert f": {where} must be " in caught.value.msg
    assert parse_config(NAME | bad, lenient=True).name == "net"


def test_valid_attachments_absent_null_and_empty_differ() -> None:
    new, old = "cni.dev/valid-attachments", "cni.dev/attachments"
    entry = {"containerID": "a", "ifname": "eth0", "extra": 1}
    assert parse().valid_attachments is None
    assert parse(**{new: None}).valid_attachments == ()
    assert parse(**{new: []}).valid_attachments == ()
    assert parse(**{old: [entry]}).valid_attachments == (Attachment("a", "eth0"),)
    assert parse(**{new: [{"containerID": "b"}], old: [entry]}).valid_attachments == (
        Attachment("b", ""),
    )


@pytest.mark.parametrize("bad", [5, {}, [5], [{}], [{"containerID": ""}], [{"containerID": 1}]])
def test_a_malformed_list_of_attachments_is_refused_even_leniently(bad: object) -> None:
    with pytest.raises(CNIError):
        parse_config(NAME | {"cni.dev/valid-attachments": bad}, lenient=True)
