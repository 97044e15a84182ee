"""Connections as conntrack knows them: both directions, and what was translated."""

from __future__ import annotations

from ipaddress import ip_address

from linux.lookups import connections
from tests.support.netns import network_namespace
from tests.support.patience import wait_for

UDP, TCP = 17, 6


def test_a_translated_connection_shows_both_ends() -> None:
    with network_namespace("connections") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        space.run("nft", "add table ip site")
        space.run("nft", "add chain ip site out { type nat hook output priority -100; }")
        space.run(
            "nft", "add rule ip site out ip daddr 127.0.0.8 udp dport 53 dnat to 127.0.0.9:5353"
        )
        script = "echo x | nc -u -w 1 -s 127.0.0.1 127.0.0.8 53"
        space.run("sh", "-c", script, check=False)
        address = ip_address("127.0.0.8")
        (found,) = wait_for(lambda: list(connections.of_address(address, UDP)), "it is known")
        assert found.translated
        assert (found.original.destination, found.original.destination_port) == (address, 53)
        assert (str(found.reply.source), found.reply.source_port) == ("127.0.0.9", 5353)
        assert not list(connections.of_address(address, TCP))
        assert not list(connections.of_address(ip_address("127.0.0.77"), UDP))
