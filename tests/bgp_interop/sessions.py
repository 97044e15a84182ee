"""Cases: how sessions come up, are kept and are lost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.bgp_interop.catalogue import case
from tests.bgp_interop.fabric import (
    BLOCK,
    BLOCK6,
    FAR,
    NODE,
    NODE6,
    OURS,
    ROUTER,
    ROUTER6,
    THEIRS,
    Fabric,
    link4,
    link6,
)
from tests.bgp_interop.router import Learned, Neighbour, Origin, Setup
from tests.support.patience import HANG, wait_for

OUTSIDE, OUTSIDE6 = "10.200.0.0/24", "fd20::/64"
OUR_BLOCK = Learned(NODE, (OURS,))


@case("session-v4-v6", "M-142")
def session(lab: Fabric) -> None:
    """IPv4 and IPv6 each over its own session; next hops are the speakers themselves."""
    origins = (Origin(OUTSIDE), Origin(OUTSIDE6))
    lab.router.start(Setup(THEIRS, (link4(), link6()), origins))
    lab.peer()
    lab.peer(ROUTER6)
    lab.up(ROUTER, ROUTER6)
    # Our last word of the opening may still be on its way to the router.
    wait_for(lambda: lab.router.up(NODE) and lab.router.up(NODE6), "the router's sessions")
    lab.told({BLOCK: OUR_BLOCK, BLOCK6: Learned(NODE6, (OURS,))})
    lab.learned({OUTSIDE: (ROUTER,), OUTSIDE6: (ROUTER6,)})


@case("md5", "F-41")
def md5(lab: Fabric) -> None:
    """With the same password a session; with another none; and again with the same."""
    neighbour = link4(password="Good-enough+1")
    lab.router.start(Setup(THEIRS, (neighbour,), (Origin(OUTSIDE),)))

    def key(name: str) -> None:
        lab.peer(password={"secretKeyRef": {"name": "bgp", "key": name}})

    key("right")
    lab.up(ROUTER)
    lab.told({BLOCK: OUR_BLOCK})
    key("wrong")
    wait_for(lambda: not lab.node.up(ROUTER), "the session ends")
    before = unsigned(lab)
    wait_for(lambda: unsigned(lab) > before + 1, "segments are refused")
    assert not lab.node.up(ROUTER)
    key("right")
    lab.up(ROUTER)
    lab.told({BLOCK: OUR_BLOCK})
    lab.learned({OUTSIDE: (ROUTER,)})


def counter(lab: Fabric, name: str) -> int:
    """A counter of n1's kernel and the router's together."""
    total = 0
    for space in (lab.space, lab.node.space):
        text = space.run("cat", "/proc/net/netstat")
        names, values = text.splitlines()[:2]
        total += int(dict(zip(names.split(), values.split(), strict=True))[name])
    return total


def unsigned(lab: Fabric) -> int:
    """Segments with a wrong, missing or unexpected signature."""
    return sum(counter(lab, f"TCPMD5{what}") for what in ("NotFound", "Unexpected", "Failure"))


@case("graceful-restart", "F-43", "PAIN-16")
def graceful_restart(lab: Fabric) -> None:
    """Our agent is killed, and the router keeps what still holds; the router is killed, and we do.

    A block that went while our agent was down goes at our End-of-RIB, not before.
    """
    setup = Setup(THEIRS, (link4(),), (Origin(OUTSIDE),), restart_time=int(HANG))
    lab.router.start(setup)
    lab.peer()
    lab.world.block("n1", "10.65.9.0/26")
    both = {BLOCK: OUR_BLOCK, "10.65.9.0/26": OUR_BLOCK}
    lab.up(ROUTER)
    lab.told(both)
    lab.learned({OUTSIDE: (ROUTER,)})
    lab.node.kill()
    wait_for(lambda: not lab.router.up(NODE), "the router noticed")
    lab.world.unblock("n1", "10.65.9.0/26")
    assert lab.heard() == both
    lab.node.start()
    (table,) = wait_for(lambda: [now for now in [lab.heard()] if now != both], "a change", 0)
    if table == {} and lab.router.loses_forwarding:
        # OpenBGPD looks its next hops up anew then: for some milliseconds none is valid.
        lab.told({BLOCK: OUR_BLOCK})
    else:
        assert table == {BLOCK: OUR_BLOCK}
    lab.up(ROUTER)
    wait_for(lambda: lab.node.status["start_complete"], "a complete snapshot")
    lab.learned({OUTSIDE: (ROUTER,)})
    assert lab.node.ear.lost == []
    # Now the router.
    lab.router.kill()
    wait_for(lambda: not lab.node.up(ROUTER), "n1 noticed")
    if lab.router.loses_forwarding:
        lab.learned({})  # RFC 4724 4.2: it did not say that it would forward meanwhile
    else:
        assert lab.node.ear.table == {OUTSIDE: (ROUTER,)}
        assert lab.node.peers()[ROUTER]["graceful_restart"] == "keeping routes"
    lab.router.start(setup, again=True)
    lab.up(ROUTER)
    wait_for(lambda: lab.node.peers()[ROUTER]["stale"] == 0, "learned anew")
    lab.learned({OUTSIDE: (ROUTER,)})
    lab.told({BLOCK: OUR_BLOCK})
    if lab.router.loses_forwarding:
        pytest.xfail(lab.router.loses_forwarding)
    assert lab.node.ear.lost == []


@case("hold-timer", "PAIN-11")
def hold_timer(lab: Fabric) -> None:
    """Silence for the smaller of both hold times: both drop the routes, and come back after it.

    The router at the latest after our restart time: GoBGP takes any end without a word from us
    for a restart.
    """
    setup = Setup(THEIRS, (link4(),), (Origin(OUTSIDE),), hold=3)
    lab.router.start(setup)
    lab.peer(maxRestartTime="5s")
    lab.up(ROUTER)
    lab.told({BLOCK: OUR_BLOCK})
    lab.learned({OUTSIDE: (ROUTER,)})
    with lab.silence():
        # Read at once: what a later attempt met takes the place of the reason.
        why = wait_for(lambda: _not_up(lab), "n1 drops the session")
        assert re.search("hold", why, re.IGNORECASE), why
        lab.learned({})
        lab.told({})
    lab.up(ROUTER, seconds=40)
    lab.told({BLOCK: OUR_BLOCK})
    lab.learned({OUTSIDE: (ROUTER,)})


def _not_up(lab: Fabric) -> str:
    """What n1 says of a session with the router that is not up; nothing while it is."""
    info = str(lab.node.peers()[ROUTER]["info"])
    return "" if info == "Established" else info


@case("multihop-ttl", "F-49")
def multihop(lab: Fabric) -> None:
    """eBGP over a router in between; then no more hops than allowed, by either side."""
    neighbour = Neighbour(NODE, OURS, FAR, hops=2)
    lab.router.start(Setup(THEIRS, (neighbour,), (Origin(OUTSIDE),)))
    lab.peer(FAR)
    lab.up(FAR)
    lab.told({BLOCK: OUR_BLOCK})
    lab.learned({OUTSIDE: (FAR,)})
    lab.router.kill()
    secured = replace(neighbour, ttl_security=True)
    with lab.applied():  # a speaker that is strict first would miss our farewell to its first dial
        lab.peer(FAR, ttlSecurity=2)
    lab.router.start(Setup(THEIRS, (secured,), (Origin(OUTSIDE),)))
    # It sits on a connection whose farewell came from too far away for four minutes (RFC 4271,
    # 8.2.2: the large hold time in OpenSent), and takes no other meanwhile.
    lab.up(FAR, seconds=300)
    lab.told({BLOCK: OUR_BLOCK})
    before = counter(lab, "TCPMinTTLDrop")
    lab.peer(FAR, ttlSecurity=1)
    wait_for(lambda: counter(lab, "TCPMinTTLDrop") > before + 1, "too far away")
    wait_for(lambda: not lab.node.up(FAR), "no session")
