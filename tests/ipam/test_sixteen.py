"""Node services allocate at once from one pool on a real etcd, and are killed at random.

Expected, whatever was killed when: `ipam check` finds nothing leaked and nothing doubly given
out, every block is consistent, no reserved address was given, and every node has its share.
By hand (a path named to `./run test`) 16 services give out 10,000 addresses of a pool that has
240 more; the fast tier runs fewer at the same tightness.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path

import pytest

from ipam import blocks, snapshot
from ipam.check import check
from libcalico.datastore.interface import Put, Selection
from libcalico.model import IPReservation, IPReservationSpec, Metadata
from libcalico.model.keys import ResourceKey
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
NODES, SHARE, KILLS, BLOCK = (16, 625, 48, 26) if FULL else (5, 60, 8, 29)
# A quarter of what is left over the shares: all nodes must borrow from each other in the end.
POOL = ip_network("10.0.0.0/18" if FULL else "10.0.0.0/23")
RESERVED = ["10.0.40.0/21", "10.0.48.0/20"] if FULL else ["10.0.0.64/26", "10.0.1.0/25"]
DEADLINE = 900.0 if FULL else 60.0


def start(etcd: Etcd, node: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.ipam._mortal_node", etcd.endpoint, node, str(SHARE)]
    return subprocess.Popen(command, cwd=ROOT)


def run_and_kill(etcd: Etcd, nodes: list[str]) -> int:
    """Run a service on every node until all have their share; returns how many were killed."""
    dice = random.Random(7)
    running = {node: start(etcd, node) for node in nodes}
    killed = 0
    deadline = time.monotonic() + DEADLINE
    next_kill = time.monotonic() + 0.8
    try:
        while running:
            assert time.monotonic() < deadline, f"not finished: {sorted(running)}"
            for node, process in list(running.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, f"{node} ended with {process.returncode}"
                    del running[node]
            if running and killed < KILLS and time.monotonic() > next_kill:
                victim = dice.choice(sorted(running))
                running[victim].kill()
                running[victim].wait()
                running[victim] = start(etcd, victim)
                killed += 1
                next_kill = time.monotonic() + dice.uniform(0.05, 0.5)
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
        assert run_and_kill(etcd, nodes) > 0
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
