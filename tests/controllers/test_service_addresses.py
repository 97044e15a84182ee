"""What a service asks for, and the fewest changes to it (LBS-1)."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.addresses.service_addresses import (
    ADDRESSES,
    POOLS,
    desired_addresses,
    handle_of,
    steps,
)
from controllers.mirror.objects import Service, ServiceSpec
from ipam.records.pools import Pool, from_resource
from libcalico.errors import InvalidValue
from libcalico.kubernetes.objects import Meta
from libcalico.model import IPPool, IPPoolSpec, Metadata


def pool(name: str, cidr: str, size: int, use: str = "LoadBalancer") -> Pool:
    spec = IPPoolSpec(cidr=cidr, blockSize=size, allowedUses=[use], nodeSelector="all()")
    return from_resource(IPPool(metadata=Metadata(name=name), spec=spec))


FOUR, OTHER = pool("four", "10.9.0.0/24", 28), pool("other", "10.8.0.0/24", 28)
SIX, PODS = pool("six", "fd00:9::/112", 122), pool("pods", "10.7.0.0/24", 28, "Workload")


@pytest.mark.parametrize(("disabled", "removed"), [(True, False), (True, True)])
def test_a_disabled_pool_keeps_addresses_and_gives_none(disabled: bool, removed: bool) -> None:
    """A pool that is being removed waits for its last address: there it is given back."""
    shut = replace(FOUR, disabled=disabled, removed=removed)
    wish, held = desired_addresses(service(), "AllServices"), ip_address("10.9.0.1")
    todo = steps(wish, [held], [shut])
    assert (todo.kept, todo.release) == (((), (held,)) if removed else ((held,), ()))
    assert steps(wish, [], [shut]).choose == ()


def service(notes: dict[str, str] | None = None, **spec: object) -> Service:
    return Service(
        metadata=Meta(name="web", namespace="s", uid="u", annotations=notes),
        spec=ServiceSpec(type="LoadBalancer", **spec),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("one", "every", "requested"),
    [
        (service(), True, False),
        (service(loadBalancerClass="calico"), True, True),
        (service(loadBalancerClass="other"), False, False),
        (service(loadBalancerIP="10.9.0.7"), True, True),
        (service({POOLS[4]: '["four"]'}), True, True),
        (Service(metadata=Meta(name="web"), spec=ServiceSpec()), False, False),
    ],
    ids=["plain", "our class", "another class", "address", "pool", "cluster ip"],
)
def test_which_services_are_ours(one: Service, every: bool, requested: bool) -> None:
    assert (desired_addresses(one, "AllServices") is not None) == every
    assert (desired_addresses(one, "RequestedServicesOnly") is not None) == requested


@pytest.mark.parametrize(
    "notes",
    [
        {POOLS[4]: "four"},
        {ADDRESSES: '["10.9.0.300"]'},
        {ADDRESSES: '["10.9.0.1", "10.9.0.2"]'},
        {ADDRESSES: '["fd00:9::1"]'},
        {ADDRESSES: "[7]"},
    ],
)
def test_a_wish_that_cannot_be_is_named(notes: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(notes))):
        desired_addresses(service(notes), "AllServices")


def test_the_handle_is_calicos() -> None:
    import base64
    import hashlib

    plain = base64.urlsafe_b64encode(hashlib.sha256(b"web-s-u").digest()).decode()
    assert handle_of("Web", "s", "U") == "lb-" + plain.translate({45: None, 95: None, 61: None})


held = st.lists(
    st.sampled_from(["10.9.0.1", "10.9.0.2", "10.8.0.1", "10.7.0.1", "fd00:9::1", "192.0.2.1"]),
    unique=True,
    max_size=4,
)


@given(
    held,
    st.sampled_from([["IPv4"], ["IPv6"], ["IPv4", "IPv6"]]),
    st.sampled_from(
        [
            {},
            {POOLS[4]: '["other"]'},
            {POOLS[4]: '["10.8.0.7/24"]'},
            {ADDRESSES: '["10.9.0.2"]'},
        ]
    ),
)
def test_a_service_ends_with_one_address_of_each_family_and_then_nothing_changes(
    texts: list[str], families: list[str], notes: dict[str, str]
) -> None:
    if ADDRESSES in notes and "IPv4" not in families:
        return
    wish = desired_addresses(service(notes, ipFamilies=families), "AllServices")
    before = [ip_address(text) for text in texts]
    pools = [FOUR, OTHER, SIX, PODS]
    todo = steps(wish, before, pools)
    assert sorted(map(str, (*todo.kept, *todo.release))) == sorted(texts), "none is forgotten"
    chosen = {4: "10.8.0.9" if POOLS[4] in notes else "10.9.0.9", 6: "fd00:9::9"}
    after = [*todo.kept, *todo.take, *(ip_address(chosen[family]) for family in todo.choose)]
    assert sorted(f"IPv{one.version}" for one in after) == sorted(families)
    again = steps(wish, after, pools)
    assert (again.release, again.take, again.choose) == ((), (), ()), "LBS-1"
    assert set(steps(None, before, pools).release) == set(before)
    assert steps(wish, before, [PODS]).release == tuple(sorted(before, key=str))
