"""Node services allocate at once from one pool on a real etcd, and are killed amid their writes.

Expected, whatever was killed when: `ipam check` finds nothing leaked and nothing doubly given
out, every block is consistent, no reserved address was given, and every node has its share.
Each service dies at a named point of a write, by the count of its own writes: the machine's speed
decides nothing. By hand (a path named to `./run test`) 16 services give out 10,000 addresses of a
pool that has 240 more; the fast tier runs fewer at the same tightness.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from ipam.admin.check import check
from ipam.records import blocks, snapshot
from libcalico.datastore.interface import Put, Selection
from libcalico.model import IPReservation, IPReservationSpec, Metadata
from libcalico.model.keys import ResourceKey
from tests.ipam._mortal_node import POINTS
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
NODES, SHARE, KILLS, BLOCK = (16, 625, 48, 26) if FULL else (5, 60, 8, 29)
# A quarter of what is left over the shares: all nodes must borrow from each other in the end.
POOL = ip_network("10.0.0.0/18" if FULL else "10.0.0.0/23")
RESERVED = ["10.0.40.0/21", "10.0.48.0/20"] if FULL else ["10.0.0.64/26", "10.0.1.0/25"]
HANG = 900.0
"""Seconds after which the services count as hung; on any machine they need far less."""


def start(etcd: Etcd, node: str, death: tuple[str, int]) -> subprocess.Popen[bytes]:
    point, number = death
    words = [etcd.endpoint, node, str(SHARE), point, str(number)]
    return subprocess.Popen([sys.executable, "-m", "tests.ipam._mortal_node", *words], cwd=ROOT)


def deaths(dice: random.Random) -> Iterator[tuple[str, int]]:
    """Where service after service dies: the first ones in their first write, in turns of POINTS."""
    for number in range(KILLS):
        yield POINTS[number % len(POINTS)], 1 if number < NODES else dice.randint(1, 4)
    while True:
        yield POINTS[0], 0


def run_and_kill(etcd: Etcd, nodes: list[str]) -> int:
    """Run a service on every node until all have their share; returns how many were killed."""
    plan = deaths(random.Random(7))
    running = {node: start(etcd, node, next(plan)) for node in nodes}
    killed = 0
    deadline = time.monotonic() + HANG
    try:
        while running:
            assert time.monotonic() < deadline, f"not finished: {sorted(running)}"
            for node, process in list(running.items()):
                if process.poll() is None:
                    continue
                if process.returncode == -signal.SIGKILL:
                    killed += 1
                    running[node] = start(etcd, node, next(plan))
                    continue
                assert process.returncode == 0, f"{node} ended with {process.returncode}"
                del running[node]
            time.sleep(0.02)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return killed


@pytest.mark.asyncio
@pytest.mark.promise("F-20")
@pytest.mark.promise("F-26")
@pytest.mark.promise("PAIN-1")
@pytest.mark.promise("PAIN-3")
async def test_killed_services_leak_nothing_and_share_nothing(etcd: Etcd) -> None:
    nodes = [f"n{number:02}" for number in range(NODES)]
    async with etcd.connect() as store:
        await put_pool(store, "p", str(POOL), BLOCK)
        for node in nodes:
            await put_node(store, node)
        reservation = IPReservation(
            metadata=Metadata(name="r"), spec=IPReservationSpec(reservedCIDRs=RESERVED)
        )
        await store.commit([Put(ResourceKey("IPReservation", "r"), reservation)])
        assert run_and_kill(etcd, nodes) >= NODES, "each dies in its first write"
        report = check(await snapshot.read(store))
        assert report.leaked() == []
        assert report.problems == ()
        assert len(report.records) == len({r.address for r in report.records}) == NODES * SHARE
        reserved = [ip_network(text) for text in RESERVED]
        for record in report.records:
            assert not any(record.address in network for network in reserved)
        per_node = [sum(r.node == node for r in report.records) for node in nodes]
        assert per_node == [SHARE] * NODES
        stored = (await store.list(Selection("Block"))).entries
        assert all(blocks.problem(entry.value) == "" for entry in stored)
