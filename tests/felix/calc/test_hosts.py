"""Which interface a host endpoint is, and what of a stored one can be read."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.hosts import interfaces_of
from felix.calc.labels import NamedPort
from felix.calc.policy.host_facts import host_facts
from felix.calc.policy_model import ANY_INTERFACE, HostEndpoint
from tests.felix.policy_objects import host, host_key


def addresses(*texts: str) -> frozenset[IPv4Address | IPv6Address]:
    return frozenset(map(ip_address, texts))


def endpoint(name: str, interface: str = "", *expected: str) -> HostEndpoint:
    return HostEndpoint(host_key(name), interface, addresses(*expected))


HOST = {
    "eth0": addresses("192.0.2.1", "fd00::1"),
    "eth1": addresses("192.0.2.129"),
    "lo": addresses("127.0.0.1"),
}


def serving(*endpoints: HostEndpoint) -> dict[str, str]:
    found = interfaces_of(endpoints, HOST)
    return {interface: one.key.name for interface, one in found.serving.items()}


def test_a_name_comes_before_an_address() -> None:
    by_address, by_name = endpoint("a", "", "192.0.2.1"), endpoint("b", "eth0")
    assert serving(by_address, by_name) == {"eth0": "b"}
    assert interfaces_of([by_address, by_name], HOST).idle == {
        host_key("a"): "interface eth0 belongs to HostEndpoint(b)"
    }


def test_of_equals_the_smallest_name_has_it() -> None:
    assert serving(endpoint("b", "eth0"), endpoint("a", "eth0")) == {"eth0": "a"}
    assert serving(endpoint("b", "", "fd00::1"), endpoint("a", "", "192.0.2.1")) == {"eth0": "a"}
    assert serving(endpoint("b", "*"), endpoint("a", "*")) == {ANY_INTERFACE: "a"}


def test_an_endpoint_that_names_an_interface_is_not_found_by_its_addresses() -> None:
    other = endpoint("a", "eth7", "192.0.2.1")
    assert serving(other) == {}
    assert interfaces_of([other], HOST).idle == {
        other.key: "there is no host interface eth7",
    }


def test_addresses_of_several_interfaces_are_all_of_them() -> None:
    both = endpoint("a", "", "fd00::1", "192.0.2.129")
    assert serving(both) == {"eth0": "a", "eth1": "a"}
    # One of the two is another's by name: the endpoint still serves, so it is not idle.
    found = interfaces_of([both, endpoint("b", "eth1")], HOST)
    assert {name: one.key.name for name, one in found.serving.items()} == {"eth0": "a", "eth1": "b"}
    assert not found.idle


def test_every_interface_and_one_of_them_live_side_by_side() -> None:
    assert serving(endpoint("all", "*"), endpoint("one", "eth1")) == {"*": "all", "eth1": "one"}


def test_an_address_that_nobody_has_is_named() -> None:
    lost = endpoint("a", "", "198.51.100.1")
    assert interfaces_of([lost], HOST).idle == {
        lost.key: "no host interface has an expected address: 198.51.100.1"
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d"]),
            st.sampled_from(["", "", "eth0", "eth1", "eth7", "*"]),
            st.lists(st.sampled_from(["192.0.2.1", "fd00::1", "192.0.2.129", "9.9.9.9"])),
        ),
        unique_by=lambda one: one[0],
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_does_not_count_and_everybody_is_served_or_named(
    given_endpoints: list[tuple[str, str, list[str]]], shuffler: object
) -> None:
    endpoints = [endpoint(name, interface, *ips) for name, interface, ips in given_endpoints]
    found = interfaces_of(endpoints, HOST)
    shuffler.shuffle(endpoints)  # type: ignore[attr-defined]
    assert interfaces_of(endpoints, HOST) == found
    served = {one.key for one in found.serving.values()}
    assert served | found.idle.keys() == {one.key for one in endpoints}
    assert not served & found.idle.keys()


def test_what_a_stored_one_says() -> None:
    key, value = host(
        "h",
        "eth0",
        {"role": "edge", "projectcalico.org/namespace": "claimed"},
        addresses=["192.0.2.1", "fd00::1"],
        profiles=["p", "q"],
        ports={"ssh": ("TCP", 22)},
    )
    facts, trouble = host_facts(key, value)
    assert not trouble
    assert (facts.interface, facts.addresses) == ("eth0", HOST["eth0"])
    # It lies in no namespace, whatever it claims.
    assert facts.item.labels == (("role", "edge"),)
    assert facts.item.profiles == ("p", "q")
    assert facts.item.contribution(None) == {"192.0.2.1", "fd00::1"}
    assert facts.item.ports == (NamedPort("ssh", "tcp", 22),)


def test_what_cannot_be_read_is_left_out_and_named() -> None:
    key, value = host("h", addresses=["192.0.2.1", "192.0.2.0/24", "?", "fe80::1%eth0"])
    facts, trouble = host_facts(key, value)
    assert facts.addresses == addresses("192.0.2.1")
    assert trouble == (
        "spec.expectedIPs: '192.0.2.0/24', '?', 'fe80::1%eth0': no address, left out"
    )
    key, value = host("h", "eth 0;", addresses=["192.0.2.1"])
    facts, trouble = host_facts(key, value)
    # It was not to be found by its addresses; it is a member of sets all the same.
    assert (facts.interface, facts.addresses) == ("", frozenset())
    assert facts.item.contribution(None) == {"192.0.2.1"}
    assert trouble == "spec.interfaceName: 'eth 0;': no interface has such a name"
