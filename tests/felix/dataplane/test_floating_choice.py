"""Which floating addresses lead where: FLT-1, whoever asks, in whatever order."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import permutations

import pytest

from felix.calc.endpoints import Endpoint
from felix.dataplane.rules.floating import NONE_FLOATING, floating_addresses
from libcalico.model.keys import ResourceKey


def key(name: str) -> ResourceKey:
    return ResourceKey("WorkloadEndpoint", f"node1-k8s-{name}-eth0", "default")


def endpoint(name: str, own: str, *outer: str) -> Endpoint:
    return Endpoint(
        key=key(name),
        interface=f"cali{name}",
        networks=(ip_network(own),),
        container_id=name,
        mac="",
        profiles=(),
        orchestrator="k8s",
        workload=f"default/{name}",
        endpoint="eth0",
        floating=tuple((ip_address(one), ip_address(own)) for one in outer),
    )


def chosen(*endpoints: Endpoint) -> tuple[dict[str, str], set[str]]:
    """What leads where, and the names of those who were refused; in every order of the asking."""
    found = set()
    for order in permutations(endpoints):
        said = floating_addresses({one.interface: one for one in order})
        pairs = {str(outer): str(own) for outer, own in said.pairs}
        assert len(pairs) == len(said.pairs)
        led = {str(net.network_address) for nets in said.networks.values() for net in nets}
        assert led == pairs.keys()
        for interface, nets in said.networks.items():
            own_of = {one.interface: str(one.networks[0].network_address) for one in order}
            assert {pairs[str(net.network_address)] for net in nets} == {own_of[interface]}
        found.add((tuple(sorted(pairs.items())), tuple(sorted(map(str, said.refused)))))
    ((pairs_, refused),) = found
    return dict(pairs_), {name for name in ("a", "b", "c") if str(key(name)) in refused}


A = endpoint("a", "10.65.0.1", "192.0.2.60")


@pytest.mark.parametrize(
    ("others", "pairs", "refused"),
    [
        ([], {"192.0.2.60": "10.65.0.1"}, set()),
        ([endpoint("b", "10.65.0.2", "192.0.2.61")],
         {"192.0.2.60": "10.65.0.1", "192.0.2.61": "10.65.0.2"}, set()),
        ([endpoint("b", "10.65.0.2", "192.0.2.60")], {"192.0.2.60": "10.65.0.1"}, {"b"}),
        ([endpoint("b", "192.0.2.60")], {}, {"a"}),
        ([endpoint("b", "10.65.0.2", "10.65.0.1")], {"192.0.2.60": "10.65.0.1"}, {"b"}),
        ([endpoint("b", "10.65.0.2", "10.65.0.2")], {"192.0.2.60": "10.65.0.1"}, {"b"}),
        ([endpoint("b", "10.65.0.2", "10.65.0.3", "192.0.2.61"), endpoint("c", "10.65.0.3")],
         {"192.0.2.60": "10.65.0.1", "192.0.2.61": "10.65.0.2"}, {"b"}),
        ([endpoint("b", "fd65::2", "2001:db8::60")],
         {"192.0.2.60": "10.65.0.1", "2001:db8::60": "fd65::2"}, set()),
    ],
    ids=["one", "two", "same", "a pod's own", "the first's own", "its own", "one of two", "six"],
)  # fmt: skip
def test_an_address_leads_to_one_pod_and_never_from_another(
    others: list[Endpoint], pairs: dict[str, str], refused: set[str]
) -> None:
    assert chosen(A, *others) == (pairs, refused)


def test_each_family_has_its_own_pairs() -> None:
    both = floating_addresses(
        {one.interface: one for one in (A, endpoint("b", "fd65::2", "2001:db8::60"))}
    )
    assert both.of(4) == ((ip_address("192.0.2.60"), ip_address("10.65.0.1")),)
    assert both.of(6) == ((ip_address("2001:db8::60"), ip_address("fd65::2")),)
    assert floating_addresses({"cali1": endpoint("a", "10.65.0.1")}) is NONE_FLOATING
