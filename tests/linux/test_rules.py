"""Routing rules by source, IPv4 and IPv6."""

from __future__ import annotations

import errno
from ipaddress import ip_address

import pytest

from linux import rules
from linux.netlink import Socket
from tests.support.netns import network_namespace


@pytest.mark.parametrize(("text", "family"), [("10.65.0.9", "-4"), ("fd65::9", "-6")])
def test_a_source_has_a_table_of_its_own(text: str, family: str) -> None:
    wanted = rules.from_source(ip_address(text), 1007, 1000)
    with network_namespace("rules") as space, space.entered(), Socket() as sock:
        sock.request(wanted)
        assert f"1000:\tfrom {text} lookup 1007" in space.run("ip", family, "rule")
        assert sock.transact([wanted])[0].errno == errno.EEXIST
        assert space.run("ip", family, "rule").count("1007") == 1
