"""From a veth to the namespace of its other end."""

from __future__ import annotations

import os

from linux import links
from linux.lookups import namespace_ids
from linux.netlink.socket import Socket
from tests.support.netns import network_namespace


def test_the_namespace_of_a_peer_is_found() -> None:
    with network_namespace("ids-node") as node, network_namespace("ids-pod") as pod:
        node.run(
            "ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", pod.name
        )
        with node.entered(), Socket() as sock:
            link = links.get(sock, "out")
            assert link is not None
            assert link.peer_netnsid is not None
            fd = namespace_ids.namespace_of(sock, link.peer_netnsid)
            assert fd is not None
            try:
                assert os.fstat(fd).st_ino == pod.path.stat().st_ino
            finally:
                os.close(fd)
            assert namespace_ids.namespace_of(sock, 987654) is None
