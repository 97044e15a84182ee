"""Stored, offered and retracted endpoints, merged."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.endpoints import Endpoint, LocalEndpoints, from_resource
from libcalico.errors import InvalidValue
from libcalico.model import Metadata, ResourceKey, WorkloadEndpoint, WorkloadEndpointSpec

KEY = ResourceKey("WorkloadEndpoint", "node1-k8s-web-eth0", "default")


def endpoint(
    container: str = "c1",
    interface: str = "cali1",
    key: ResourceKey = KEY,
    address: str = "10.0.0.1",
    uid: str = "",
) -> Endpoint:
    return Endpoint(
        key,
        container,
        interface,
        (ip_network(address),),
        "",
        (),
        "k8s",
        f"default/{key.name}",
        "eth0",
        uid=uid,
    )


def stored(spec: WorkloadEndpointSpec) -> WorkloadEndpoint:
    return WorkloadEndpoint(metadata=Metadata(name=KEY.name, namespace="default"), spec=spec)


def test_a_stored_endpoint_is_read() -> None:
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="node1",
        containerID="c1",
        pod="web",
        endpoint="eth0",
        ipNetworks=["10.65.0.1/32", "fd65::1/128"],
        interfaceName="cali1",
        mac="aa:bb:cc:dd:ee:ff",
    )
    found = from_resource(KEY, stored(spec))
    assert found.networks == (ip_network("10.65.0.1/32"), ip_network("fd65::1/128"))
    assert found.identity == ("k8s", "default/web", "eth0")


@pytest.mark.parametrize(
    ("interface", "network", "field"),
    [
        ("", "10.0.0.1/32", "spec.interfaceName"),
        ("c" * 16, "10.0.0.1/32", "spec.interfaceName"),
        ("cali1", "10.0.0.0/24", "spec.ipNetworks"),
        ("cali1", "nonsense", "spec.ipNetworks"),
    ],
)
def test_what_cannot_be_routed_is_named(interface: str, network: str, field: str) -> None:
    spec = WorkloadEndpointSpec(interfaceName=interface, ipNetworks=[network])
    with pytest.raises(InvalidValue, match=field):
        from_resource(KEY, stored(spec))


def test_the_watch_event_of_an_offer_changes_nothing() -> None:
    table = LocalEndpoints()
    assert table.offer(endpoint())
    assert not table.store(KEY, endpoint())
    assert not table.offer(endpoint())
    assert table.get(KEY) == endpoint()


def test_an_offer_that_was_stored_differently_gives_way() -> None:
    table = LocalEndpoints()
    table.offer(endpoint("c1"))
    assert table.store(KEY, endpoint("c2"))
    assert table.get(KEY) == endpoint("c2")


def test_a_predecessors_late_end_does_not_end_an_offer() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("old", uid="1"))
    table.offer(endpoint("new", uid="2"))
    assert not table.store(KEY, None)
    assert table.get(KEY) == endpoint("new")
    assert not table.store(KEY, endpoint("new", uid="2"))
    assert table.store(KEY, None)


def test_what_is_told_late_of_a_failed_attempt_does_not_touch_the_next_one() -> None:
    """EPT-5: the same container, interface and address; only the stored object is another."""
    table = LocalEndpoints()
    second = endpoint("c1", uid="2")
    table.offer(endpoint("c1", uid="1"))
    table.retract(KEY, "c1")
    table.offer(second)
    assert not table.store(KEY, endpoint("c1", address="10.0.0.9", uid="1"))
    assert not table.store(KEY, None)
    assert table.get(KEY) == second
    assert not table.store(KEY, second)
    assert table.store(KEY, None)
    # The store had the first one when the second was offered.
    table.store(KEY, endpoint("c1", uid="3"))
    table.offer(endpoint("c1", uid="4"))
    assert not table.store(KEY, None)
    assert table.get(KEY) == second
    assert not table.store(KEY, None), "both ends of an attempt in one event"
    assert table.retract(KEY, "c1")


def test_a_pod_without_a_container_does_not_end_an_offer() -> None:
    """As with the Kubernetes datastore, where the pod is the stored object."""
    table = LocalEndpoints()
    table.store(KEY, endpoint("", uid="1"))
    table.offer(endpoint("c1", uid="1"))
    assert not table.store(KEY, endpoint("", uid="1")), "the kubelet wrote its status"
    found = table.get(KEY)
    assert found is not None
    assert found.container_id == "c1"
    table.store(KEY, endpoint("c1", uid="1"))
    table.store(KEY, endpoint("", uid="1"))
    found = table.get(KEY)
    assert found is not None
    assert found.container_id == ""


def test_the_stores_word_on_the_container_before_does_not_end_an_offer() -> None:
    """EPT-5: an endpoint that is stored already keeps its uid."""
    table = LocalEndpoints()
    table.store(KEY, endpoint("old", uid="1"))
    table.offer(endpoint("new", uid="1"))
    relabelled = replace(endpoint("old", uid="1"), labels=(("a", "b"),))
    assert not table.store(KEY, relabelled)
    assert table.get(KEY) == endpoint("new")
    assert not table.store(KEY, endpoint("new", uid="1"))
    assert table.store(KEY, relabelled), "now it is the newest word"
    assert table.get(KEY) == relabelled


def test_a_sandbox_made_anew_is_served_with_the_address_that_was_offered() -> None:
    """EPT-2, EPT-5: as with the Kubernetes datastore, where the kubelet reports the addresses."""
    table = LocalEndpoints()
    table.store(KEY, endpoint("c1", uid="1", address="10.0.0.5"))
    assert table.retract(KEY, "c1")
    for _ in range(2):
        assert not table.store(KEY, endpoint("", uid="1", address="10.0.0.5"))
        assert table.get(KEY) is None, "the address is free, and perhaps another's"
    offered = endpoint("c2", uid="1", address="10.0.0.9")
    assert table.offer(offered)
    for late in ("", "c2", "c2"):
        assert not table.store(KEY, endpoint(late, uid="1", address="10.0.0.5"))
        assert table.get(KEY) == offered
    assert not table.store(KEY, endpoint("c2", uid="1", address="10.0.0.9"))
    assert table.get(KEY) == offered
    assert table.store(KEY, endpoint("c2", uid="1", address="10.0.0.7"))


def test_an_address_that_others_decided_ends_an_offer() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("c1", uid="1", address="10.0.0.5"))
    table.offer(endpoint("c2", uid="1", address="10.0.0.9"))
    decided = endpoint("c2", uid="1", address="10.0.0.7")
    assert table.store(KEY, decided)
    assert table.get(KEY) == decided


def test_an_attempt_that_failed_does_not_bring_the_address_before_back() -> None:
    table = LocalEndpoints()
    former = endpoint("", uid="1", address="10.0.0.5")
    table.store(KEY, endpoint("c1", uid="1", address="10.0.0.5"))
    table.retract(KEY, "c1")
    table.store(KEY, former)
    second = endpoint("c2", uid="1", address="10.0.0.9")
    table.offer(second)
    table.forget_offer(second)
    assert table.get(KEY) is None
    table.offer(second)
    table.retract(KEY, "c2")
    assert table.get(KEY) is None
    assert not table.store(KEY, former)
    third = endpoint("c3", uid="1", address="10.0.0.9")
    assert table.store(KEY, third)
    assert table.get(KEY) == third


def test_a_retraction_hides_its_container_until_the_store_agrees() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("c1"))
    assert not table.retract(KEY, "c2")
    assert table.retract(KEY, "c1")
    assert table.get(KEY) is None
    assert not table.store(KEY, endpoint("c1")), "an event that was under way"
    assert table.store(KEY, endpoint("c2")), "the successor"
    assert not table.store(KEY, endpoint("c2"))
    assert table.store(KEY, None)
    assert table.store(KEY, endpoint("c1")), "the name comes back"


def test_an_offer_is_forgotten_unless_it_was_stored() -> None:
    table = LocalEndpoints()
    table.offer(endpoint())
    assert table.forget_offer(endpoint())
    assert table.get(KEY) is None
    table.offer(endpoint())
    assert not table.forget_offer(replace(endpoint(), uid="former")), "of an earlier attempt"
    table.store(KEY, endpoint())
    assert not table.forget_offer(endpoint())
    assert table.get(KEY) == endpoint()


def test_an_interface_has_one_owner_and_the_others_are_named() -> None:
    table = LocalEndpoints()
    first, second = (ResourceKey("WorkloadEndpoint", name, "default") for name in ("a", "b"))
    table.store(second, endpoint(key=second))
    table.store(first, endpoint(key=first))
    winners, shadowed = table.active()
    assert winners["cali1"].key == first
    assert "belongs to WorkloadEndpoint(default/a)" in shadowed[second]
    table.store(first, None)
    assert table.active() == ({"cali1": endpoint(key=second)}, {})


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["store", "drop", "offer", "retract"]), st.sampled_from("ab"))
)


@given(OPERATIONS)
def test_after_the_store_spoke_it_is_right(operations: list[tuple[str, str]]) -> None:
    table = LocalEndpoints()
    had, offered = "", ""
    for operation, container in operations:
        match operation:
            case "store":
                table.store(KEY, endpoint(container))
                late = endpoint(offered) if container == had else None
                assert table.get(KEY) in (endpoint(container), late, None)
                had = container
            case "drop":
                table.store(KEY, None)
                assert table.get(KEY) in (None, endpoint("a"), endpoint("b"))
            case "offer":
                table.offer(endpoint(container))
                offered = container
                assert table.get(KEY) == endpoint(container)
            case "retract":
                table.retract(KEY, container)
                found = table.get(KEY)
                assert found is None or found.container_id != container
    for container in "ab":
        table.retract(KEY, container)
    table.store(KEY, None)
    assert table.get(KEY) is None
    table.store(KEY, endpoint("z"))
    assert table.get(KEY) == endpoint("z")


def test_an_interface_without_our_prefix_is_named_and_never_served() -> None:
    """EPT-4: an endpoint that names the node's own link must not have it reconfigured."""
    other = ResourceKey("WorkloadEndpoint", "node1-k8s-odd-eth0", "default")
    endpoints = LocalEndpoints()
    endpoints.store(KEY, endpoint())
    endpoints.store(other, endpoint("c2", "eth0", other, "10.0.0.2"))
    active, shadowed = endpoints.active(("cali",))
    assert set(active) == {"cali1"}
    assert shadowed == {other: "interface eth0 does not begin with cali"}
    assert set(endpoints.active(("cali", "eth"))[0]) == {"cali1", "eth0"}
