"""Names that a real Calico chose, and their rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico import names
from libcalico.datastore.etcd.keys import key_of_path
from libcalico.errors import InvalidValue
from libcalico.model import WorkloadEndpoint, codec
from libcalico.model.validation.endpoint import expected_name
from tests.libcalico.golden_data import pairs


def test_names_are_those_a_real_calico_chose() -> None:
    checked = 0
    for path, raw in pairs():
        key = key_of_path(path)
        assert key is not None
        value = codec.decode_value(key, raw)
        if not isinstance(value, WorkloadEndpoint):
            continue
        spec = value.spec
        assert expected_name(spec) == value.metadata.name
        if spec.orchestrator == "k8s":
            wanted = names.host_interface_name(value.metadata.namespace, spec.pod)
        else:
            wanted = names.host_interface_name_cni(spec.containerID)
        assert spec.interfaceName == wanted
        checked += 1
    assert checked == 2


def test_parts_are_joined_and_dashes_doubled() -> None:
    name = names.workload_endpoint_name("worker-1", "k8s", "web-0", "eth0")
    assert name == "worker--1-k8s-web--0-eth0"
    assert names.parse(name) == ("worker-1", "k8s", "web-0", "eth0")
    assert names.workload_endpoint_prefix("worker-1", "k8s", "web-0") == "worker--1-k8s-web--0-"
    assert names.workload_endpoint_name("n", "libnetwork", "x", "e") == "n-libnetwork-libnetwork-e"


@pytest.mark.parametrize("bad", ["", "-a", "a-"])
def test_a_part_that_cannot_be_split_again_is_refused(bad: str) -> None:
    with pytest.raises(InvalidValue):
        names.workload_endpoint_name("n", "k8s", bad, "eth0")


@pytest.mark.parametrize("bad", ["", "a", "a-b-c", "a-b-c-d-e", "a-b--c-d"])
def test_other_names_do_not_parse(bad: str) -> None:
    with pytest.raises(InvalidValue):
        names.parse(bad)


part = st.from_regex(r"[a-z0-9.]([-a-z0-9.]{0,8}[a-z0-9.])?", fullmatch=True)


@given(part, part.filter(lambda word: word != "libnetwork"), part, part)
def test_every_name_parses_back(node: str, orchestrator: str, workload: str, end: str) -> None:
    name = names.workload_endpoint_name(node, orchestrator, workload, end)
    assert names.parse(name) == (node, orchestrator, workload, end)
    assert name.startswith(names.workload_endpoint_prefix(node, orchestrator))


def test_small_names() -> None:
    assert names.handle_id("k8s-pod-network", "4ad5") == "k8s-pod-network.4ad5"
    assert names.host_interface_name_cni("abc") == "caliabc"
    assert names.namespace_profile("prod") == "kns.prod"
    assert names.service_account_profile("prod", "web") == "ksa.prod.web"
    assert names.vxlan_mac("node1").startswith("66:")
    assert len(names.host_interface_name("default", "web-0")) == 15


def test_a_handle_may_name_each_container_that_follows_one_of_its_dots() -> None:
    assert names.containers_of("net.c") == {"c"}
    assert names.containers_of("a.b.c") == {"b.c", "c"}
    assert names.containers_of("old") == {"old"}
    assert names.containers_of("net.") == names.containers_of("") == frozenset()
