"""Stored, offered and retracted endpoints, merged."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from felix.calc.endpoints import Endpoint, from_resource
from felix.calc.local_endpoints import LocalEndpoints
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
    assert not table.store(KEY, endpoint(), 1)
    assert not table.offer(endpoint())
    assert table.get(KEY) == endpoint()


def test_a_predecessors_late_end_does_not_end_an_offer() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("old", uid="1"), 1)
    table.offer(endpoint("new", uid="2"))
    assert not table.store(KEY, None, 2)
    assert table.get(KEY) == endpoint("new")
    assert not table.store(KEY, endpoint("new", uid="2"), 3)
    assert table.store(KEY, None, 4)


def test_what_is_told_late_of_a_failed_attempt_does_not_touch_the_next_one() -> None:
    """STD-2: the same container, interface and address; only the stored object is another."""
    table = LocalEndpoints()
    second = endpoint("c1", uid="2")
    table.offer(endpoint("c1", uid="1"))
    table.retract(KEY, "c1")
    table.offer(second)
    for late in (endpoint("c1", address="10.0.0.9", uid="1"), endpoint("c1", uid="1"), None):
        assert not table.store(KEY, late, 1)
        assert table.get(KEY) == second
    assert not table.settle(KEY, "c1", 3)
    assert not table.store(KEY, second, 3)
    assert table.store(KEY, None, 4)


def test_a_pod_without_a_container_does_not_end_an_offer() -> None:
    """As with the Kubernetes datastore, where the pod is the stored object."""
    table = LocalEndpoints()
    table.store(KEY, endpoint("", uid="1"), 1)
    table.offer(endpoint("c1"))
    assert not table.store(KEY, endpoint("", uid="1"), 2), "the kubelet wrote its status"
    assert table.get(KEY) == endpoint("c1")
    table.settle(KEY, "c1", 3)
    table.store(KEY, endpoint("c1", uid="1"), 3)
    table.store(KEY, endpoint("", uid="1"), 4)
    assert table.get(KEY) == endpoint("")


def test_an_attempt_that_failed_does_not_bring_the_address_before_back() -> None:
    table = LocalEndpoints()
    former = endpoint("", uid="1", address="10.0.0.5")
    table.store(KEY, endpoint("c1", uid="1", address="10.0.0.5"), 1)
    table.retract(KEY, "c1")
    table.store(KEY, former, 2)
    second = endpoint("c2", uid="1", address="10.0.0.9")
    table.offer(second)
    assert table.abandon(second) is False
    assert table.get(KEY) is None
    table.offer(second)
    table.retract(KEY, "c2")
    assert table.get(KEY) is None
    assert not table.store(KEY, former, 3)
    third = endpoint("c3", uid="1", address="10.0.0.9")
    assert table.store(KEY, third, 4)
    assert table.get(KEY) == third


def test_a_retraction_hides_its_container_until_the_store_agrees() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("c1"), 1)
    assert not table.retract(KEY, "c2")
    assert table.retract(KEY, "c1")
    assert table.get(KEY) is None
    assert not table.store(KEY, endpoint("c1"), 2), "an event that was under way"
    assert table.store(KEY, endpoint("c3"), 3), "the successor"
    assert not table.store(KEY, endpoint("c3"), 4)
    assert table.store(KEY, None, 5)
    table.retract(KEY, "c3")
    assert not table.store(KEY, endpoint("c3"), 6), "told late"
    assert table.offer(endpoint("c3")), "it comes back"


def test_an_offer_is_abandoned_unless_it_was_stored() -> None:
    table = LocalEndpoints()
    first = endpoint()
    table.offer(first)
    assert table.abandon(first) is False
    assert table.get(KEY) is None
    second = endpoint()
    table.offer(second)
    assert table.abandon(first) is None, "of an earlier attempt"
    table.settle(KEY, "c1", 7)
    assert table.abandon(second) is None, "the datastore will tell of it"
    assert table.get(KEY) == endpoint()
    third = endpoint(uid="of cni")
    table.offer(third)
    table.store(KEY, endpoint(uid="of the pod"), 9)
    assert table.abandon(third) is True, "it was stored, and nobody said so"
    assert table.get(KEY) == endpoint()


def test_an_interface_has_one_owner_and_the_others_are_named() -> None:
    table = LocalEndpoints()
    first, second = (ResourceKey("WorkloadEndpoint", name, "default") for name in ("a", "b"))
    table.store(second, endpoint(key=second), 1)
    table.store(first, endpoint(key=first), 2)
    winners, shadowed = table.active()
    assert winners["cali1"].key == first
    assert "belongs to WorkloadEndpoint(default/a)" in shadowed[second]
    table.store(first, None, 3)
    assert table.active() == ({"cali1": endpoint(key=second)}, {})


def test_an_interface_without_our_prefix_is_named_and_never_served() -> None:
    """EPT-4: an endpoint that names the node's own link must not have it reconfigured."""
    other = ResourceKey("WorkloadEndpoint", "node1-k8s-odd-eth0", "default")
    endpoints = LocalEndpoints()
    endpoints.store(KEY, endpoint(), 1)
    endpoints.store(other, endpoint("c2", "eth0", other, "10.0.0.2"), 2)
    active, shadowed = endpoints.active(("cali",))
    assert set(active) == {"cali1"}
    assert shadowed == {other: "interface eth0 does not begin with cali"}
    assert set(endpoints.active(("cali", "eth"))[0]) == {"cali1", "eth0"}


def test_what_the_datastore_lost_is_told_once_and_not_what_cni_took_back() -> None:
    table = LocalEndpoints()
    table.offer(endpoint("new"))
    table.store(KEY, endpoint("new"), 1)
    assert table.take_vanished() == {}
    table.store(KEY, None, 2)
    assert table.take_vanished() == {KEY: "new"}
    assert table.take_vanished() == {}
    table.store(KEY, endpoint("newer"), 3)
    table.retract(KEY, "newer")
    table.store(KEY, None, 4)
    assert table.take_vanished() == {}, "a DEL"
    table.store(KEY, endpoint("newest"), 5)
    table.store(KEY, None, 6)
    table.retract(KEY, "newest")
    assert table.take_vanished() == {}, "a DEL whose word comes second"
    table.store(KEY, endpoint("waits"), 7)
    table.unreleased = frozenset({"waits"})
    table.store(KEY, None, 8)
    assert table.take_vanished() == {}, "its release waited"


def test_what_a_listing_lacks_has_vanished_too() -> None:
    table = LocalEndpoints()
    table.offer(endpoint("new"))
    table.settle(KEY, "new", 5)
    table.listing_begins()
    assert table.listing_ended()
    assert table.take_vanished() == {KEY: "new"}
