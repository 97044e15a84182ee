"""A router that comes and goes once a second, over a whole node: agent, ExaBGP, felix, kernel.

          hub: a raw peer, AS 64500 ---- n1: calico-bgp with its ExaBGP, calico-felix

1. Each session brings 40 routes, half of them others than the last one brought; they reach the
   kernel, and what the last one brought and this one did not is gone from it.
2. While the peer is away a block of ours comes or goes: the next session is told the new set.
3. Every other session ends with graceful restart: its routes stay in the kernel while it is away.
4. Afterwards nothing has grown: memory, descriptors, sockets, routes, neighbours, rules.

Full size: five minutes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

from tests.bgp.routed import Felix, kernel_table, use_pool
from tests.bgp.session_lab import RawPeer
from tests.bgp.world import ROUTER, Node, World, cluster
from tests.support import bgp_wire as wire
from tests.support.patience import HANG, wait_for

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
ROUNDS, PAUSE = (300, 1.0) if FULL else (12, 0.0)
SLACK = 1024 if FULL else 6144
"""KiB that a program may grow by, beside one part in thirty, between the second quarter and the
last: a short run is not far from the start."""
ROUTES = 40
AS = 64500
ATTRIBUTES = wire.ORIGIN + wire.AS_PATH + wire.attribute(0x40, 3, IPv4Address(ROUTER).packed)
Footprint = dict[str, int]


def offered(number: int) -> list[str]:
    """What the peer brings in a round: half of it is in the next round's, too."""
    first = number * ROUTES // 2
    return [f"10.{50 + n // 250}.{n % 250}.0/24" for n in range(first, first + ROUTES)]


def footprint(node: Node, felix: Felix) -> Footprint:
    """KiB, descriptors and threads of every program; what the kernel holds for the node."""
    assert node.process is not None
    assert felix.process is not None
    programs = {"agent": node.process.pid, "felix": felix.process.pid}
    programs |= {f"speaker {n}": pid for n, pid in enumerate(sorted(node.exabgp()))}
    found: Footprint = {}
    for name, pid in programs.items():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        found[f"{name} KiB"] = int(status["VmRSS"].split()[0])
        found[f"{name} threads"] = int(status["Threads"])
        found[f"{name} descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    space = node.space
    # Closed connections wait a minute in the kernel, so many a minute: no leak.
    sockets = [line for line in space.run("ss", "-Hna").splitlines() if "TIME-WAIT" not in line]
    found["sockets"] = len(sockets)
    found["routes"] = len(space.run("ip", "route", "show", "table", "all").splitlines())
    found["neighbours"] = len(space.run("ip", "neighbour").splitlines())
    found["rules"] = len(space.run("nft", "list", "ruleset").splitlines())
    return found


def told(raw: RawPeer) -> set[str]:
    """The prefixes that this connection's UPDATEs announced and did not withdraw."""
    found: set[str] = set()
    for body in raw.updates():
        gone = int.from_bytes(body[:2], "big")
        found -= set(_prefixes(body[2 : 2 + gone]))
        rest = body[2 + gone :]
        found |= set(_prefixes(rest[2 + int.from_bytes(rest[:2], "big") :]))
    return found


def _prefixes(data: bytes) -> list[str]:
    found = []
    while data:
        octets = (data[0] + 7) // 8
        address = IPv4Address(data[1 : 1 + octets].ljust(4, b"\0"))
        found.append(f"{address}/{data[0]}")
        data = data[1 + octets :]
    return found


def compare(marks: list[Footprint]) -> str:
    """What grew between the second quarter and the last; the figures as a table."""
    quarter = len(marks) // 4
    early, late = marks[quarter : 2 * quarter], marks[-quarter:]
    grown = []
    for name in sorted(set().union(*marks)):
        before, after = (
            statistics.median(mark.get(name, 0) for mark in part) for part in (early, late)
        )
        print(f"{name:24} {marks[0].get(name, 0):8} {before:10.0f} {after:10.0f}")
        allowed = before + (before / 30 + SLACK if name.endswith("KiB") else 2)
        if after > allowed:
            grown.append(f"{name}: {before:.0f} then {after:.0f}")
    return "; ".join(grown)


async def become(what: str, ask: Callable[[], set[str]], wanted: set[str]) -> None:
    """Poll until it is so; the difference stands in the failure."""
    found: set[str] = set()
    try:
        async with asyncio.timeout(HANG):
            while (found := ask()) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what}: {found - wanted} too many, no {wanted - found}") from None


async def flap(world: World, node: Node, felix: Felix) -> list[Footprint]:
    """All rounds; a footprint after each, while the peer is away."""
    raw = RawPeer(IPv4Address(ROUTER), asn=AS)
    ours, changing = {"10.65.1.0/26"}, "10.65.7.0/26"
    marks = []
    kernel = lambda: set(kernel_table(node.space))  # noqa: E731
    for number in range(ROUNDS):
        started = asyncio.get_running_loop().time()
        graceful, expected = number % 2 == 1, set(offered(number))
        await raw.dial(to=IPv4Address(node.address))
        await raw.open(restart=120 if graceful else 0)
        nets = b"".join(map(wire.nlri, offered(number)))
        await raw.update(attributes=ATTRIBUTES, reachable=nets)
        await raw.update()  # End-of-RIB: what a predecessor left may go
        await become(f"round {number}: its routes", kernel, expected)
        await become(f"round {number}: ours", lambda: told(raw), set(ours))
        await raw.close()
        if changing in ours:
            world.unblock(node.name, changing)
        else:
            world.block(node.name, changing)
        ours ^= {changing}
        await become(f"round {number}: what stays", kernel, expected if graceful else set())
        marks.append(footprint(node, felix))
        await asyncio.sleep(max(0.0, PAUSE - (asyncio.get_running_loop().time() - started)))
    return marks


def test_a_node_whose_router_flaps_grows_by_nothing() -> None:
    with ExitStack() as stack:
        world = stack.enter_context(cluster(1))
        (node,) = world.nodes.values()
        node.environ |= {"CALICO_BGP_HOLD_TIME": "240", "CALICO_LOG_LEVEL": "INFO"}
        use_pool(world, "10.65.0.0/16")
        world.register(node)
        world.block(node.name, "10.65.1.0/26")
        world.peer_with_router()
        felix = Felix(node)
        stack.callback(felix.stop)
        felix.start()
        node.start()
        felix.wait()
        wait_for(lambda: ROUTER in node.peers(), "the session is configured")
        with world.hub.entered():
            marks = asyncio.run(flap(world, node, felix))
        assert compare(marks) == ""
