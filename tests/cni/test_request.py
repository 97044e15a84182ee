"""The daemon's view of a call: CNI_ARGS, the pod, requested addresses. The checks themselves
are in the vectors (`test_vectors.py`)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from cni.request.environment import delegate_args, parse_args
from cni.request.errors import CNIError
from cni.request.request import Command, parse_request
from tests.cni.executable import BASE, CONFIG


def parse(env: dict[str, str] | None = None, **config: Any) -> Any:
    return parse_request("/opt/cni/bin/calico", BASE | (env or {}), json.dumps(CONFIG | config))


def test_a_request_is_typed() -> None:
    request = parse({"CNI_PATH": ":/a:/b/:"})
    assert request.plugin == "calico"
    assert request.command is Command.ADD
    assert (request.container_id, request.ifname) == ("c0ffee", "eth0")
    assert request.netns == "/var/run/netns/testing"
    assert request.path == ("/a", "/b/")
    assert request.config.name == "net"
    assert request.config.version == "1.0.0"
    assert request.pod is None


def test_without_a_version_it_is_dispatched_as_0_1_0_and_answered_as_0_2_0() -> None:
    request = parse(cniVersion="")
    assert (request.config.version, request.config.result_version) == ("0.1.0", "0.2.0")


def test_the_pod_needs_both_names() -> None:
    assert parse({"CNI_ARGS": "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p"}).pod == ("ns", "p")
    assert parse({"CNI_ARGS": "K8S_POD_NAMESPACE=;K8S_POD_NAME=p"}).pod is None


def test_arguments_in_any_order_of_any_content() -> None:
    pieces = ["K8S_POD_NAMESPACE=ns", "IgnoreUnknown=1", "K8S_POD_NAME=p", "broken"]
    for order in itertools.permutations(pieces):
        found = parse_args(";".join(order), "ADD")
        assert found == {"K8S_POD_NAMESPACE": "ns", "K8S_POD_NAME": "p"}
    assert parse_args("A=1;", "ADD") == {"A": "1"}
    assert parse_args(";;", "ADD") == parse_args("", "ADD") == {}
    assert parse_args("A=b=c;A=;a=2", "ADD") == {"A": "", "a": "2"}
    assert parse_args("UNKNOWN=1;IgnoreUnknown=0", "ADD") == {"UNKNOWN": "1"}
    assert parse_args("X=" + "y" * 5000, "ADD")["X"] == "y" * 5000


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
def test_a_broken_pair_is_an_error_unless_told_to_ignore(command: str) -> None:
    with pytest.raises(CNIError, match="invalid pair 'broken'") as caught:
        parse_args("A=1;broken", command)
    assert caught.value.code == 4
    for value in ("1", "true", "TRUE", "True"):
        assert parse_args(f"broken;IgnoreUnknown={value}", command) == {}


@pytest.mark.parametrize("command", ["DEL", "GC", "STATUS"])
def test_a_broken_pair_never_stops_what_works_without_arguments(command: str) -> None:
    assert parse_args("A=1;broken", command) == {"A": "1"}


def test_requested_addresses_have_one_source() -> None:
    env = {"CNI_ARGS": "IP=10.0.0.1,10.0.0.2/24"}
    hint = {"cni": {"ips": ["10.0.0.3", 5, "nonsense"]}}
    assert parse(env).requested_ips == ("10.0.0.1", "10.0.0.2/24")
    assert parse(env, args=hint).requested_ips == ("10.0.0.3",)
    runtime = {"ips": ["10.0.0.4/24"]}
    assert parse(env, args=hint, runtimeConfig=runtime).requested_ips == ("10.0.0.4/24",)


def test_a_delegate_ignores_unknown_arguments() -> None:
    assert delegate_args("K8S_POD_NAME=p") == "IgnoreUnknown=1;K8S_POD_NAME=p"
    assert delegate_args("") == "IgnoreUnknown=1"


def test_a_delete_with_a_useless_configuration_is_still_a_delete() -> None:
    request = parse(
        {"CNI_COMMAND": "DEL", "CNI_ARGS": "broken"},
        ipam="what",
        mtu="abc",
        runtimeConfig=[],
        prevResult=5,
        plugins=[],
        type="a/b",
    )
    assert request.command is Command.DEL
    assert request.config.ipam.type == ""
