"""Names that follow from a call, the endpoint that is written, and what the runtime hands over."""

from __future__ import annotations

import dataclasses
import json
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from cni.pods.endpoint import NETWORK_ANNOTATION, EndpointWriter, remover
from cni.pods.pod_source import PodFacts, RuntimePodSource
from cni.request.attachment import Attachment, attachment_of, check_endpoint_name
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
from libcalico.datastore.interface import ABSENT, Delete, Entry, Put
from libcalico.model.codec import decode_value
from tests.cni.world import network_config

WEB = Attachment("node1", "net", "c" * 64, "eth0", "default", "web-1")


def request(config: dict[str, Any] | None = None, arguments: str = "") -> Request:
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c" * 64,
        "CNI_NETNS": "/n",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": arguments,
    }
    return parse_request("calico", env, json.dumps(network_config(config)))


@pytest.mark.promise("M-138")
def test_names_are_calicos() -> None:
    # The golden documents' first pod: default/web-1.
    assert WEB.host_interface == "cali0761ccbeace"
    assert WEB.endpoint_key.name == "node1-k8s-web--1-eth0"
    assert WEB.handle_id == f"net.{'c' * 64}"
    plain = attachment_of(request(), "node1")
    assert plain.host_interface == "cali" + "c" * 11
    assert plain.endpoint_key.name == f"node1-cni-{'c' * 64}-eth0"
    assert plain.namespace == "default"


def test_interfaces_of_one_pod_never_share_a_host_interface() -> None:
    """CNI-10."""
    others = [
        dataclasses.replace(WEB, ifname="net1"),
        dataclasses.replace(WEB, ifname="net2"),
        dataclasses.replace(WEB, pod="web-1.net1"),
        dataclasses.replace(WEB, pod="", ifname="eth0"),
        dataclasses.replace(WEB, pod="", ifname="net1"),
    ]
    names = {one.host_interface for one in [WEB, *others]}
    assert len(names) == 6
    assert all(len(name) == 15 for name in names)


def test_a_name_that_cannot_be_an_endpoint_is_refused() -> None:
    with pytest.raises(CNIError, match="must not be empty nor begin or end") as refused:
        check_endpoint_name(dataclasses.replace(WEB, pod="web-"))
    assert refused.value.code == 4


def test_an_endpoint_keeps_its_identity_and_goes_only_with_its_container() -> None:
    """CNI-12, CNI-13."""
    address = ip_address("10.0.0.1")
    first = EndpointWriter(WEB, PodFacts(labels={"app": "web"}), "02:00:00:00:00:01")
    put = first.change(None, [address])
    assert isinstance(put, Put)
    assert put.guard == ABSENT
    raw = first.stored_bytes()
    stored = Entry(WEB.endpoint_key, decode_value(WEB.endpoint_key, raw), 7, raw)
    assert first.recorded(stored) == [address]

    newer = dataclasses.replace(WEB, container_id="d" * 64)
    second = EndpointWriter(newer, PodFacts(), "02:00:00:00:00:02")
    assert second.recorded(stored) == []
    again = second.change(stored, [ip_address("10.0.0.2")])
    assert isinstance(again, Put)
    assert again.guard == 7
    assert again.value.metadata.uid == stored.value.metadata.uid
    assert again.value.metadata.creationTimestamp == stored.value.metadata.creationTimestamp

    # A network that an older sandbox's endpoint told is not the newer one's.
    told = {NETWORK_ANNOTATION: "older", "mine": "stays"}
    noted = msgspec.structs.replace(stored.value.metadata, annotations=told)
    older = msgspec.structs.replace(
        stored, value=msgspec.structs.replace(stored.value, metadata=noted)
    )
    after = EndpointWriter(newer, PodFacts(), "02:00:00:00:00:02").change(older, [address])
    assert isinstance(after, Put)
    assert after.value.metadata.annotations == {"mine": "stays"}

    assert remover(newer).change(stored, []) is None
    assert remover(WEB).change(stored, []) == Delete(WEB.endpoint_key, 7)
    assert remover(WEB).change(None, []) is None


@pytest.mark.asyncio
async def test_the_runtime_hands_over_labels_annotations_and_ports() -> None:
    facts = await RuntimePodSource().facts(
        request(
            {
                "args": {
                    "cni": {
                        "labels": [{"key": "app", "value": "web"}, {"key": 1}],
                        "ports": [
                            {"name": "http", "protocol": "tcp", "port": 8080},
                            {"name": "", "port": 1},
                            {"name": "bad", "port": "x"},
                            "nonsense",
                        ],
                    }
                },
                "runtimeConfig": {
                    "io.kubernetes.cri.pod-annotations": {"a": "b"},
                    "PORTMAPPINGS": [
                        {"hostPort": 80, "containerPort": 8080, "protocol": "udp"},
                        {"hostPort": 0, "containerPort": 1},
                        None,
                    ],
                },
            }
        )
    )
    assert facts.labels == {"app": "web"}
    assert facts.annotations == {"a": "b"}
    assert [(p.name, p.protocol, p.port, p.hostPort) for p in facts.ports] == [
        ("http", "TCP", 8080, 0),
        ("", "UDP", 8080, 80),
    ]
