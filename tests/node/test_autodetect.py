"""The choice of the node's address over tables of interfaces."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

import pytest

from libcalico.errors import InvalidValue, MuslinError
from node.identity import autodetect
from node.identity.autodetect import Interface, IPAddress
from node.settings.environment import AddressSetting


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name, tuple(ip_interface(text) for text in addresses))


HOST = [
    interface("lo", "127.0.0.1/8", "::1/128"),
    interface("eth0", "10.0.0.5/24", "fe80::1/64", "fd00::5/64"),
    interface("eth1", "192.0.2.9/28"),
    interface("docker0", "172.17.0.1/16"),
    interface("cali0123456789a", "169.254.1.1/32"),
    interface("tunl0", "10.65.0.1/32"),
]


def nowhere(host: str, version: int) -> IPAddress | None:
    return None


@pytest.mark.parametrize(
    ("method", "version", "address"),
    [
        ("first-found", 4, "192.0.2.9/28"),
        ("first-found", 6, "fd00::5/64"),
        ("interface=eth0", 4, "10.0.0.5/24"),
        ("interface=docker.*,eth9", 4, "172.17.0.1/16"),
        ("skip-interface=eth1", 4, "10.0.0.5/24"),
        ("cidr=172.16.0.0/12", 4, "172.17.0.1/16"),
        ("cidr=fd00::/8,10.0.0.0/24", 4, "10.0.0.5/24"),
        ("interface=nothing", 4, None),
        ("cidr=203.0.113.0/24", 4, None),
        ("skip-interface=eth", 4, None),
    ],
)
@pytest.mark.promise("M-200")
def test_methods(method: str, version: int, address: str | None) -> None:
    choice = autodetect.choose(AddressSetting("autodetect", method), version, HOST, nowhere)
    assert (str(choice.address) if choice else None) == address


def test_can_reach_takes_the_kernels_answer_and_the_local_mask() -> None:
    choice = autodetect.choose(
        AddressSetting("autodetect", "can-reach=192.0.2.1"),
        4,
        HOST,
        lambda host, version: ip_address("10.0.0.5") if host == "192.0.2.1" else None,
    )
    assert choice is not None
    assert str(choice.address) == "10.0.0.5/24"
    wish = AddressSetting("autodetect", "can-reach=192.0.2.1")
    assert autodetect.choose(wish, 4, HOST, nowhere) is None


def test_an_explicit_address_gets_the_mask_of_its_interface() -> None:
    bare = AddressSetting("explicit", address=ip_interface("10.0.0.5"))
    masked = AddressSetting("explicit", address=ip_interface("10.0.0.5/16"), has_mask=True)
    foreign = AddressSetting("explicit", address=ip_interface("10.9.9.9"))
    answers = [autodetect.choose(wish, 4, HOST, nowhere) for wish in (bare, masked, foreign)]
    assert [str(one.address) for one in answers if one] == [
        "10.0.0.5/24",
        "10.0.0.5/16",
        "10.9.9.9/32",
    ]


@pytest.mark.parametrize(
    "method", ["", "last-found", "interface=", "can-reach", "interface=[", "cidr=x"]
)
def test_unknown_methods_are_refused_by_name(method: str) -> None:
    with pytest.raises(InvalidValue, match="IP_AUTODETECTION_METHOD"):
        autodetect.choose(AddressSetting("autodetect", method), 4, HOST, nowhere)


NAMED = AddressSetting("autodetect", "kubernetes-internal-ip", asked=True)
BY_DEFAULT = AddressSetting("autodetect")
INTERNAL = (ip_address("10.0.0.5"), ip_address("fd00::5"))


@pytest.mark.promise("PAIN-10")
def test_where_no_method_is_named_the_internal_ip_comes_before_first_found() -> None:
    for version, address in ((4, "10.0.0.5/24"), (6, "fd00::5/64")):
        choice = autodetect.choose(BY_DEFAULT, version, HOST, nowhere, INTERNAL)
        assert choice is not None
        assert str(choice.address) == address
        assert choice.why == "the InternalIP of the Kubernetes node, on an interface here"
    by_name = AddressSetting("autodetect", "first-found", asked=True)
    choice = autodetect.choose(by_name, 4, HOST, nowhere, INTERNAL)
    assert choice is not None
    assert str(choice.address) == "192.0.2.9/28"


def test_an_internal_ip_that_is_not_here_is_declined_and_named() -> None:
    choice = autodetect.choose(BY_DEFAULT, 4, HOST, nowhere, (ip_address("198.51.100.1"),))
    assert choice is not None
    assert str(choice.address) == "192.0.2.9/28"
    assert "the InternalIP 198.51.100.1 of the Kubernetes node is on no interface" in choice.why


def test_the_internal_ip_by_name() -> None:
    assert str(autodetect.choose(NAMED, 4, HOST, nowhere, INTERNAL)).count("10.0.0.5/24") == 1
    # Elsewhere: behind NAT; it is what was asked for, and start-up warns.
    far = autodetect.choose(NAMED, 4, HOST, nowhere, (ip_address("198.51.100.1"),))
    assert far is not None
    assert str(far.address) == "198.51.100.1/32"
    assert autodetect.choose(NAMED, 4, HOST, nowhere, (ip_address("fd00::5"),)) is None


def again(wish: AddressSetting, stored: str, interfaces: list[Interface]) -> str | None:
    known = ip_interface(stored)
    internal = (ip_address("10.0.0.5"),) if wish is BY_DEFAULT else ()
    choice = autodetect.choose_again(wish, known, 4, interfaces, nowhere, internal)
    return str(choice.address) if choice else None


def test_an_address_that_is_still_here_stays_when_another_comes_first() -> None:
    by_name = AddressSetting("autodetect", "first-found", asked=True)
    assert again(by_name, "10.0.0.5/24", HOST) == "10.0.0.5/24"
    assert again(by_name, "10.0.0.5/16", HOST) == "10.0.0.5/24", "with the mask of now"
    assert again(by_name, "10.0.0.77/24", HOST) == "192.0.2.9/28"
    assert (
        again(AddressSetting("autodetect", "interface=eth1"), "10.0.0.5/24", HOST) == "192.0.2.9/28"
    )
    assert again(by_name, "172.17.0.1/16", HOST) == "192.0.2.9/28", "the method allows no docker0"
    assert again(by_name, "10.0.0.5/24", []) is None


def test_a_new_internal_ip_is_followed() -> None:
    assert again(BY_DEFAULT, "192.0.2.9/28", HOST) == "10.0.0.5/24"


def test_no_address_says_what_to_set() -> None:
    with pytest.raises(MuslinError, match=r"no address was found for IP6 by first-found: set IP6"):
        autodetect.require(None, "IP6", "first-found")


def test_shown_interfaces_are_sorted_and_without_ours() -> None:
    assert [one.name for one in autodetect.shown(HOST)] == ["eth0", "eth1"]
