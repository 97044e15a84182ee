"""A pod that gets a departed pod's address: nothing of the predecessor's traffic, all of its own.

The predecessor has an established flow with a peer outside, which goes on sending. The successor
is closed, so what the peer sends may pass only as part of a connection that the kernel remembers.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from tests.felix.stage import allow
from tests.felix.world import World
from tests.support.patience import HANG, wait_for

ADDRESS, ADDRESS6 = "10.65.0.50", "fd65::50"
PEER = {4: "10.99.7.2", 6: "2001:db8:7::2"}


@pytest.mark.promise("PAIN-7")
@pytest.mark.parametrize("family", [4, 6])
def test_what_was_meant_for_the_predecessor_never_comes_to_the_successor(
    world: World, family: int
) -> None:
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    here = ADDRESS if family == 4 else ADDRESS6
    world.outside.run("ip", "route", "replace", "fd65::/48", "via", "2001:db8:7::1")
    egress = {"selector": "has(closed)", "types": ["Ingress", "Egress"], "egress": [allow()]}
    world.put("globalnetworkpolicies", "closed", "GlobalNetworkPolicy", egress)
    with ExitStack() as stack:

        def made(space: object, type: int) -> socket.socket:
            sock = space.call(lambda: socket.socket(kind, type))  # type: ignore[attr-defined]
            stack.callback(sock.close)
            sock.settimeout(0.5)
            return sock  # type: ignore[no-any-return]

        old = world.wire("cali0old", ADDRESS, ADDRESS6)
        world.put_endpoint("old", old, container="a" * 64)
        server = made(old.space, socket.SOCK_DGRAM)
        server.bind((here, 7777))
        peer = made(world.outside, socket.SOCK_DGRAM)
        peer.connect((here, 7777))

        def talks() -> bool:
            peer.send(b"to the predecessor")
            try:
                data, where = server.recvfrom(100)
            except TimeoutError:
                return False
            server.sendto(data, where)
            try:
                return peer.recv(100) == data
            except TimeoutError:
                return False

        wait_for(talks)
        world.delete_endpoint("old")
        wait_for(lambda: not world.route(f"{ADDRESS}/32"))
        world.ip("link del cali0old")
        world.pods.remove(old)

        new = world.wire("cali0new", ADDRESS, ADDRESS6)
        catcher = made(new.space, socket.SOCK_DGRAM)
        catcher.bind((here, 7777))
        catcher.settimeout(0.02)
        caller = made(new.space, socket.SOCK_STREAM)
        listener = made(world.outside, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((PEER[family], 7778))
        listener.listen()
        world.put_endpoint("new", new, container="b" * 64, labels={"closed": ""}, profiles=[])
        connected = False
        until = time.monotonic() + HANG
        quiet_until = until
        while time.monotonic() < min(until, quiet_until):
            try:
                peer.send(b"to the predecessor")
            except OSError:
                pass
            try:
                got = catcher.recv(100)
            except TimeoutError:
                got = b""
            assert got == b"", "the successor heard what was not meant for it"
            if not connected:
                caller.settimeout(0.1)
                connected = caller.connect_ex((PEER[family], 7778)) == 0
                # From here on for some time: late flushes must not harm the successor.
                quiet_until = time.monotonic() + 1.5 if connected else until
        assert connected, "the successor is served"
        accepted, _ = listener.accept()
        stack.callback(accepted.close)
        caller.settimeout(HANG)
        accepted.send(b"still here")
        assert caller.recv(100) == b"still here"
        world.delete_endpoint("new")
        world.delete("globalnetworkpolicies", "closed")
        wait_for(lambda: not world.route(f"{ADDRESS}/32"))
        world.ip("link del cali0new")
        world.pods.remove(new)
