"""Addresses that name one host, and those that do not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from libcalico.host_address import is_host


@pytest.mark.parametrize("text", ["10.0.0.1", "169.254.1.1", "240.0.0.1", "fd00::1", "fe80::1"])
def test_a_host_can_have_it(text: str) -> None:
    assert is_host(ip_address(text))


@pytest.mark.parametrize(
    "text", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"]
)
def test_no_host_can_have_it(text: str) -> None:
    assert not is_host(ip_address(text))
