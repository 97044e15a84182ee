"""A router offers more routes than are taken of one peer: what the cut costs in memory.

Part flood of `./run bench bgp`. In felix's place a reader takes what comes: bgp alone is measured.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

from bgp.speaker.interface import DEFAULT_MAX_PREFIXES
from tests.bench._bgp_table import PATIENCE, resident
from tests.bench._felix_world import Json
from tests.bgp.routed import use_pool
from tests.bgp.world import ROUTER, cluster
from tests.support.patience import wait_for

GIVEN_BACK = 35.0
"""Seconds after which `libcalico.process.malloc_trim` has given back what is free."""


def flood(size: int, limit: int = DEFAULT_MAX_PREFIXES) -> Json:
    """So many routes of one router, until its session is ended, and some time after."""
    routes = " ".join(f"route {each} unreachable;" for each in _networks(size))
    with ExitStack() as stack:
        world = stack.enter_context(cluster(1))
        (node,) = world.nodes.values()
        node.environ = {"CALICO_BGP_MAX_PREFIXES": str(limit), "CALICO_LOG_LEVEL": "INFO"}
        use_pool(world, "100.64.0.0/10")
        world.register(node)
        world.peer_with_router()
        world.start_bird(f"protocol static offered {{ disabled yes; ipv4; {routes} }}")
        node.start()
        wait_for(lambda: node.up(ROUTER), "the session")
        assert node.process is not None
        pid, begun = node.process.pid, time.perf_counter()
        before = resident([pid])
        world.birdc("enable", "offered")
        cut = lambda: "more than" in str(node.peers()[ROUTER])  # noqa: E731
        wait_for(cut, "the cut", limit=PATIENCE)
        seconds = time.perf_counter() - begun
        time.sleep(GIVEN_BACK)
        return {
            "offered": size,
            "limit": limit,
            "seconds": round(seconds, 2),
            "before_pss_mib": before,
            "peak_rss_mib": peak(pid),
            "after_pss_mib": resident([pid]),
            "exabgp_pss_mib": resident(node.exabgp()),
        }


def peak(pid: int) -> float:
    """The most memory that a process ever had, MiB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def _networks(count: int) -> list[str]:
    """So many networks of 16 addresses. Pure."""
    first = 200 << 24
    return [f"{IPv4Address(first + 16 * number)}/28" for number in range(count)]
