"""What is a leak, as a rule (LEAK-1 to LEAK-3)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controllers import metrics
from controllers.addresses.counts import count
from controllers.addresses.leaks import GAP, ClusterView, PodView, Watchlist, judge
from ipam.records.pools import Pool
from libcalico.model import Block
from libcalico.model.resources.ipam import Attribute

CIDR = ip_network("10.70.0.0/29")
POD = {"node": "n1", "namespace": "s", "pod": "p"}


def block(*held: tuple[int, str, dict[str, str], int | None]) -> Block:
    """A block in which these ordinals are held: by whom, as what, since which write."""
    allocations: list[int | None] = [None] * 8
    sequences = {}
    attributes: list[Attribute] = []
    for ordinal, handle, attribute, sequence in held:
        allocations[ordinal] = len(attributes)
        attributes.append(Attribute(handle_id=handle, secondary=attribute))
        if sequence is not None:
            sequences[str(ordinal)] = sequence
    return Block(
        cidr=str(CIDR),
        affinity="host:n1",
        allocations=allocations,
        unallocated=[n for n, index in enumerate(allocations) if index is None],
        attributes=attributes,
        sequenceNumber=99,
        sequenceNumberForAllocation=sequences,
    )


def view(
    pods: dict[tuple[str, str], PodView] | None = None,
    nodes: dict[str, str] | None = None,
    kubernetes: tuple[str, ...] = ("k1",),
) -> ClusterView:
    return ClusterView(pods or {}, {"n1": "k1"} if nodes is None else nodes, frozenset(kubernetes))


HELD = (1, "net.c1", POD, 7)


def test_an_address_without_its_pod_is_a_candidate() -> None:
    found = judge([block(HELD)], view()).unused
    (one,) = found.values()
    assert (one.handle_id, one.node_gone, one.pod) == ("net.c1", False, ("s", "p"))
    assert {(held.address, held.sequence) for held in one.allocations} == {
        (ip_address("10.70.0.1"), 7)
    }


@pytest.mark.parametrize(
    ("pod", "leaks"),
    [
        (PodView("k1", frozenset({"10.70.0.1"})), False),
        (PodView("k1", frozenset()), False),
        (PodView("", frozenset({"10.70.0.1"})), False),
        (PodView("k1", frozenset({"10.70.0.2"})), False),
        (PodView("k2", frozenset({"10.70.0.1"})), True),
        (PodView("k1", frozenset({"10.70.0.1"}), evicted=True), True),
    ],
    ids=["its own", "none yet", "not placed", "of no network of ours", "another node", "evicted"],
)
def test_a_pod_holds_its_address(pod: PodView, leaks: bool) -> None:
    assert bool(judge([block(HELD)], view({("s", "p"): pod})).unused) == leaks


@pytest.mark.parametrize(
    ("pod", "leaks"),
    [
        (PodView("k1", frozenset({"10.70.0.1"})), False),
        (PodView("k1", frozenset()), False),
        (PodView("k2", frozenset({"10.70.0.1"})), False),
        (PodView("k2", frozenset({"10.70.0.4"})), True),
        (PodView("k2", frozenset()), True),
        (PodView("n1", frozenset()), False),
        (PodView("k1", frozenset({"10.70.0.4"})), True),
        (PodView("k1", frozenset({"10.70.0.1"}), evicted=True), True),
        (None, True),
    ],
    ids=[
        "its own", "none yet", "its own where the Node has a new name", "of another node",
        "none yet on another node", "of the Node's name", "of another sandbox", "evicted", "no pod",
    ],
)  # fmt: skip
def test_a_pod_holds_its_address_also_when_its_node_is_gone_with_its_name_in_kubernetes(
    pod: PodView | None, leaks: bool
) -> None:
    """LEAK-1: which node of Kubernetes the deleted Node was is not known any more."""
    second = (2, "other.c1", {**POD, "interface": "net1"}, 8)
    elsewhere = (4, "net.c2", {**POD, "node": "n2"}, 9)
    pods = {("s", "p"): pod} if pod else {}
    found = judge([block(HELD, second, elsewhere)], view(pods, {"n2": "k2"}, ("k1", "k2"))).unused
    assert ("net.c1" in found, "other.c1" in found) == (leaks, leaks)


@pytest.mark.parametrize("network", ["net", "other", "a.dotted"])
def test_the_address_of_another_sandbox_leaks_and_that_of_another_network_does_not(
    network: str,
) -> None:
    """Kubernetes tells the addresses of a pod's first network alone (Multus: net1 is not told)."""
    pods = {("s", "p"): PodView("k1", frozenset({"10.70.0.1"}))}
    second = (2, f"{network}.c1", {**POD, "interface": "net1"}, 8)
    earlier = (3, f"{network}.c0", POD, 5)
    found = judge([block(HELD, second, earlier)], view(pods)).unused
    assert found.keys() == {f"{network}.c0"}


@pytest.mark.parametrize(
    ("told", "other", "leaks"),
    [
        ("2026-11-28 10:00:00 +0000 UTC", "2026-11-28 10:00:00.5 +0000 UTC", False),
        ("2026-11-28 10:00:00.12 +0000 UTC", "2026-11-28 10:00:00.123 +0000 UTC", False),
        ("2026-11-28 10:00:00.5 +0000 UTC", "2026-11-28 10:00:00 +0000 UTC", True),
        ("2026-11-28 10:00:00 +0000 UTC", "", True),
        ("", "2026-11-28 10:00:00 +0000 UTC", True),
    ],
    ids=["newer", "newer by little", "older", "time not known", "other time not known"],
)
def test_a_newer_sandbox_than_the_one_that_kubernetes_tells_keeps_its_address(
    told: str, other: str, leaks: bool
) -> None:
    """LEAK-8: the DEL of the old one is lost, and the kubelet is silent; also without endpoints."""
    pods = {("s", "p"): PodView("k1", frozenset({"10.70.0.1"}))}
    first = (1, "net.c1", POD | ({"timestamp": told} if told else {}), 7)
    second = (2, "net.c2", POD | ({"timestamp": other} if other else {}), 8)
    assert ("net.c2" in judge([block(first, second)], view(pods)).unused) == leaks


@pytest.mark.parametrize(
    "held",
    [
        (1, "", POD, 7),
        (1, "net.c1", {"namespace": "s", "pod": "p"}, 7),
        (1, "net.c1", {"node": "n1"}, 7),
        (1, "net.c1", {"node": "n1", "pod": "p"}, 7),
        (1, "net.c1", {"node": "n1", "namespace": "s"}, 7),
        (1, "net.c1", POD, None),
        (1, "net.c1", {**POD, "vmi-name": "v"}, 7),
        (1, "net.c1", {**POD, "node": "outside"}, 7),
        (1, "t", {"node": "n1", "type": "vxlanTunnelAddress"}, 7),
        (1, "windows-reserved-ipam-handle", {"note": "windows host rsvd"}, 7),
    ],
    ids=[
        "handle",
        "node",
        "kind",
        "namespace",
        "pod",
        "sequence",
        "machine",
        "outside",
        "tunnel",
        "windows",
    ],
)
def test_missing_information_means_in_use(held: Any) -> None:
    assert judge([block(held)], view(nodes={"n1": "k1", "outside": ""})).unused == {}, "LEAK-1"


def test_what_a_torn_block_says_proves_nothing() -> None:
    torn = replace(block(HELD), unallocated=[0, 1])
    assert judge([torn], view()).unused == {}, "LEAK-1"


@pytest.mark.parametrize(
    "other", [{"node": "n2"}, {"pod": "other"}, {"vmi": "v"}, {"type": "vxlanTunnelAddress"}]
)
def test_a_doubt_about_one_address_keeps_all_of_the_handle(other: dict[str, str]) -> None:
    doubtful = (2, "net.c1", {**POD, **other}, 8)
    known = view(nodes={"n1": "k1", "n2": "k1"})
    if "type" not in other:
        assert judge([block(HELD, doubtful)], known).unused == {}, "LEAK-1"
        assert judge([block((1, *doubtful[1:]), (2, *HELD[1:]))], known).unused == {}
    both = frozenset({"10.70.0.1", "10.70.0.2"})
    choices: list[dict[str, str] | None] = [None, {}]
    for nodes in choices:
        alive = view({("s", "p"): PodView("k1" if nodes is None else "n1", both)}, nodes)
        assert judge([block(HELD, doubtful)], alive).unused == {}, "whether its node is gone or not"


def test_an_allocation_without_a_number_keeps_its_handle_while_its_node_is_there() -> None:
    pair = block(HELD, (2, "net.c1", POD, None))
    assert judge([pair], view()).unused == {}, "LEAK-1"
    assert judge([pair], view(nodes={})).unused


def test_all_addresses_of_a_handle_leak_or_none_does() -> None:
    pods = {("s", "p"): PodView("k1", frozenset({"10.70.0.2"}))}
    both = block(HELD, (2, "net.c1", POD, 8))
    assert judge([both], view(pods)).unused == {}
    assert list(judge([both], view()).unused) == ["net.c1"]


@pytest.mark.parametrize("nodes", [{}, {"n1": "k1"}], ids=["no Node", "no node of Kubernetes"])
def test_a_tunnels_address_goes_with_the_last_tenant_of_its_node(nodes: dict[str, str]) -> None:
    tunnel = (0, "vxlan-tunnel-addr-n1", {"node": "n1", "type": "vxlanTunnelAddress"}, 3)
    gone = view(nodes=nodes, kubernetes=())
    assert list(judge([block(tunnel)], gone).unused) == ["vxlan-tunnel-addr-n1"]
    unknown = (3, "someone", {"node": "n1"}, 4)
    kept = judge([block(tunnel, unknown)], gone)
    assert (kept.unused, kept.tenants) == ({}, frozenset({"n1"})), "LEAK-3"


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0.5, 30)), min_size=1, max_size=12), st.booleans()
)
def test_what_is_confirmed_was_seen_twice_and_all_the_time_between(
    looks: list[tuple[bool, float]], gone: bool
) -> None:
    cluster = view(nodes={} if gone else None)
    seen = judge([block(HELD)], cluster).unused.values()
    watchlist, now = Watchlist(60), 0.0
    since: float | None = None
    for there, passed in looks:
        now += passed
        confirmed = watchlist.observe(seen if there else (), now)
        if not there:
            since = None
        elif since is None:
            since = now
        due = since is not None and now - since >= (GAP if gone else 60)
        assert bool(confirmed) == due, "LEAK-2"


def test_a_new_allocation_begins_anew_and_no_grace_means_never_while_the_node_is() -> None:
    watchlist = Watchlist(60)
    first = judge([block(HELD)], view()).unused.values()
    again = judge([block((1, "net.c1", POD, 8))], view()).unused.values()
    assert watchlist.observe(first, 0) == []
    assert watchlist.observe(again, 100) == []
    assert len(watchlist.observe(again, 170)) == 1
    never = Watchlist(0)
    never.observe(first, 0)
    assert never.observe(first, 1e6) == []


def test_the_reserved_addresses_of_a_pool_are_counted_once() -> None:
    """Calico #13331: what an IPReservation covers is no free address."""
    pools = [
        Pool(name="a", cidr=ip_network("10.65.0.0/24"), block_size=26),
        Pool(name="b", cidr=ip_network("fd65::/120"), block_size=122),
    ]
    reserved = [ip_network(text) for text in ("10.65.0.0/30", "10.65.0.2/32", "10.66.0.0/24")]
    counts = count([], pools, [], [*reserved, ip_network("fd65::/122"), ip_network("fd00::/8")])
    assert counts.reserved == {"a": 4, "b": 256}
    assert b'ipam_ippool_reserved{ippool="a"} 4.0' in metrics.ipam(counts)
