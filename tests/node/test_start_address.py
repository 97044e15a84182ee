"""The address of a node that starts again while Kubernetes does not answer. Pure."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_interface

import pytest

from libcalico.errors import MuslinError
from node.identity.autodetect import Interface
from node.settings.environment import INTERNAL_IP, AddressSetting
from node.start import addresses
from node.start.addresses import Machine

INTERFACES = (
    Interface("eth0", (ip_interface("10.99.1.1/24"),)),
    Interface("eth1", (ip_interface("192.0.2.9/28"),)),
)
INTERNAL = (ip_address("10.99.1.1"),)
SILENT = Machine(INTERFACES, unanswered=True)


def first(wish: AddressSetting, machine: Machine, stored: str = "") -> str:
    known = ip_interface(stored) if stored else None
    return str(asyncio.run(addresses.first(wish, 4, machine, known)))


@pytest.mark.parametrize(
    "wish", [AddressSetting("autodetect"), AddressSetting("autodetect", INTERNAL_IP, asked=True)]
)
def test_a_silent_kubernetes_moves_no_node(wish: AddressSetting) -> None:
    """First-found would be eth1's address; without one the start would fail."""
    assert first(wish, Machine(INTERFACES, INTERNAL)) == "10.99.1.1/24"
    assert first(wish, SILENT, "10.99.1.1/24") == "10.99.1.1/24"


def test_nor_is_it_moved_later() -> None:
    """The stored address is on an interface that first-found would not take."""
    bridge = (*INTERFACES[1:], Interface("br-ex", (ip_interface("10.99.1.1/24"),)))
    silent = Machine(bridge, unanswered=True)
    known = ip_interface("10.99.1.1/24")
    choice = asyncio.run(addresses.again(AddressSetting("autodetect"), 4, silent, known))
    assert choice is not None
    assert choice.address == known


def test_what_is_not_kubernetes_to_say_is_found_as_ever() -> None:
    named = AddressSetting("autodetect", "interface=eth1", asked=True)
    assert first(named, SILENT, "10.99.1.1/24") == "192.0.2.9/28"
    assert (
        first(AddressSetting("autodetect"), Machine(INTERFACES), "10.99.1.1/24") == "192.0.2.9/28"
    )


def test_a_stored_address_that_is_gone_does_not_stay() -> None:
    assert first(AddressSetting("autodetect"), SILENT, "10.99.1.77/24") == "192.0.2.9/28"
    with pytest.raises(MuslinError, match="kubernetes-internal-ip"):
        first(AddressSetting("autodetect", INTERNAL_IP, asked=True), SILENT, "10.99.1.77/24")
