"""What all programs of a node write in a large cluster by themselves, counted on a real etcd.

Time is simulated: each program gives its signs as often as it would, and etcd's revision tells how
many writes that were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.calc.nodes import NodeFacts
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.reports.reporting import LARGE, Reports, Sizes, is_kept_alive
from libcalico.datastore.leased_values import REWRITE, LeasedValues
from node.identity import life
from node.identity.life_sign import Signs
from tests.support.etcd import Etcd
from tests.support.patience import HANG, until

pytestmark = pytest.mark.asyncio

ROOT = "/calico/felix/v2/no-region/host/n1"
CONFIG = Config(reporting_interval=30, reporting_ttl=90)
MINUTES = 20
KEYS = ["last_reported_status", "machine", "status"]


class Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def seconds(self, minutes: int) -> Iterator[int]:
        """Every second of so many minutes."""
        for second in range(minutes * 60):
            self.now += 1
            yield second


def felix(nodes: int, clock: Clock) -> Reports:
    plane = Dataplane(Calculator("n1"), PathTable(), CONFIG, lambda: None)
    plane.calc.nodes.update({f"n{number}": NodeFacts() for number in range(nodes)})
    return Reports("n1", lambda: CONFIG, plane, sign=LeasedValues(clock, lambda: 1.0))


async def writes_of_each_minute(etcd: Etcd, nodes: int) -> list[int]:
    """Revisions of felix and calico-node in each of `MINUTES`, the start left out."""
    clock, counts = Clock(), []
    async with etcd.connect() as store:
        reports = felix(nodes, clock)
        signs = Signs(store, "n1", values=LeasedValues(clock, lambda: 1.0))
        for second in clock.seconds(MINUTES):
            if second % 60 == 0:
                counts.append(etcd.revision())
            if second % int(CONFIG.reporting_interval) == 0:
                await reports.give(store, CONFIG, float(second), second == 0)
            if second % int(life.INTERVAL) == 0:
                await signs.give()
        counts.append(etcd.revision())
    return [after - before for before, after in pairwise(counts)]


async def test_a_node_of_many_writes_once_a_minute_at_most(etcd: Etcd) -> None:
    writes = await writes_of_each_minute(etcd, LARGE + 1)
    assert writes[0] == 2, "the start: one of felix, one of calico-node"
    assert sum(writes) <= MINUTES
    assert sum(writes[1:]) <= 2 * MINUTES * 60 / (0.8 * REWRITE), "each once in four minutes"
    assert sorted(etcd.keys(ROOT)) == [f"{ROOT}/{key}" for key in KEYS]


async def test_a_node_of_few_writes_felix_s_sign_every_interval_as_calico_does(etcd: Etcd) -> None:
    writes = await writes_of_each_minute(etcd, LARGE)
    of_felix = MINUTES * 60 / CONFIG.reporting_interval
    assert of_felix <= sum(writes) <= of_felix + MINUTES * 60 / (0.8 * REWRITE)
    assert sorted(etcd.keys(ROOT)) == [f"{ROOT}/{key}" for key in KEYS]


async def test_a_sign_that_etcd_lost_is_written_at_once(etcd: Etcd) -> None:
    """Its lease has expired or is not in the backup that etcd was restored from."""
    clock = Clock()
    async with etcd.connect() as store:
        reports = felix(LARGE + 1, clock)
        signs = Signs(store, "n1", values=LeasedValues(clock))
        await reports.give(store, CONFIG, 1.0, True)
        await signs.give()
        for lease in etcd.ctl("lease", "list").decode().split()[3:]:
            etcd.ctl("lease", "revoke", lease)
        assert etcd.keys(ROOT) == [f"{ROOT}/last_reported_status"]
        await reports.give(store, CONFIG, 2.0, False)
        await signs.give()
        assert sorted(etcd.keys(ROOT)) == [f"{ROOT}/{key}" for key in KEYS]


async def test_the_loop_of_felix_keeps_its_sign_without_a_write(private_etcd: Etcd) -> None:
    """And a change of the parameters is followed: a sign of 10 s more is another lease."""
    config = replace(CONFIG, reporting_interval=0.05)
    plane = Dataplane(Calculator("n1"), PathTable(), config, lambda: None)
    plane.calc.nodes.update({f"n{number}": NodeFacts() for number in range(LARGE + 1)})
    reports = Reports("n1", lambda: config, plane, Sizes(first_report=0.0, timeout=HANG))
    async with private_etcd.connect() as store:
        task = asyncio.create_task(reports.alive(store))
        try:
            await until(lambda: private_etcd.get(f"{ROOT}/status") is not None)
            revision = private_etcd.revision()
            kept = private_etcd.asked("LeaseKeepAlive")
            await until(lambda: private_etcd.asked("LeaseKeepAlive") >= kept + 5)
            assert private_etcd.revision() == revision
            config = replace(config, reporting_ttl=100)
            reports.configured()
            await until(lambda: private_etcd.revision() == revision + 1)
            assert private_etcd.asked("LeaseGrant") == 2
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_openstack_hears_every_sign() -> None:
    assert is_kept_alive(Config(), LARGE + 1)
    assert not is_kept_alive(Config(), LARGE)
    assert not is_kept_alive(Config(openstack_region="north"), LARGE + 1)
