"""TX checksum offload of a device: read, switched, read again."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from linux import links, offload, vxlan
from linux.errors import KernelError
from linux.netlink import Socket
from linux.vxlan import Vxlan
from tests.support.netns import network_namespace


def test_it_is_switched_off_and_on() -> None:
    with network_namespace("off") as space, space.entered(), Socket() as sock:
        parent = links.made(sock, links.create("br0", "bridge", up=True), "br0").index
        wanted = Vxlan(4096, 4789, ip_address("10.1.1.1"), parent)
        sock.request(vxlan.create("vx0", wanted, mac="66:00:00:00:00:01", mtu=1400))
        assert offload.tx_checksum("vx0")
        for on in (False, True):
            offload.set_tx_checksum("vx0", on)
            assert offload.tx_checksum("vx0") is on


def test_a_device_that_is_not_there_is_an_error() -> None:
    with (
        network_namespace("off") as space,
        space.entered(),
        pytest.raises(KernelError, match="vx9"),
    ):
        offload.tx_checksum("vx9")
