"""Liveness by loop, readiness by this node's own dataplane."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator

import pytest

from felix.config.parameters import Config
from felix.reports.heartbeats import Heartbeats, beating
from tests.felix.in_kernel import mode
from tests.felix.world import World
from tests.support.patience import patient, wait_for


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.promise("F-102")
def test_each_loop_has_a_limit_of_its_own_once_it_runs() -> None:
    clock = Clock()
    beats = Heartbeats(clock)
    clock.now = 1000
    # The datastore has not been reached: alive, not ready.
    assert all(reporter.is_alive for reporter in beats.all)
    assert not beats.startup.is_ready
    beats.started(Config(health_timeout_overrides=(("CalculationGraph", 45.0),)))
    limits = {reporter.name: reporter.timeout for reporter in beats.all}
    assert limits == {
        "FelixStartup": 0,
        "CalculationGraph": 45,
        "InternalDataplaneMainLoop": 90,
        "FelixStatus": 60,
    }
    assert all(reporter.is_alive for reporter in beats.all)
    clock.now += 46
    assert [r.name for r in beats.all if not r.is_alive] == ["CalculationGraph"]
    beats.configure(Config(dataplane_watchdog_timeout=20))
    assert [r.name for r in beats.all if not r.is_alive] == [
        "CalculationGraph",
        "InternalDataplaneMainLoop",
    ]


def test_what_somebody_else_says_of_a_loop_is_no_heartbeat() -> None:
    clock = Clock()
    beats = Heartbeats(clock)
    beats.started(Config())
    clock.now = 31
    beats.calculation.state(True)
    assert not beats.calculation.is_alive
    beats.calculation.alive()
    assert beats.calculation.is_ready


@pytest.mark.asyncio
async def test_a_loop_that_waits_beats_and_one_that_hangs_does_not() -> None:
    count = 0
    go, closed = asyncio.Event(), asyncio.Event()

    def beat() -> None:
        nonlocal count
        count += 1

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await go.wait()
            yield 2
        finally:
            closed.set()

    items = beating(source(), beat, every=0.02)
    assert await anext(items) == 1
    begun = count
    # The consumer works on the item: nobody beats for it.
    await asyncio.sleep(0.1)
    assert count == begun
    waiting = asyncio.ensure_future(anext(items))
    async with asyncio.timeout(patient(15)):
        while count < begun + 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    go.set()
    assert await waiting == 2
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    assert closed.is_set()


@pytest.mark.promise("M-201", "F-102")
def test_readiness_is_this_nodes_own_dataplane(bare_world: World) -> None:
    """Not before the datastore was read; afterwards also while it is away."""
    world = bare_world
    world.start_felix()
    wait_for(lambda: world.get("/liveness")[0] == 200)
    status, table = world.get("/readiness")
    assert status == 503
    assert "FelixStartup" in table
    world.etcd.start()
    world.write_cluster()
    world.wait_ready(30)
    assert "InternalDataplaneMainLoop" in world.get("/readiness")[1]
    # No speaker ever came; now the datastore goes, too.
    world.etcd.stop()
    wait_for(lambda: "the datastore is away" in world.log())
    assert world.get("/readiness")[0] == 200
    assert world.get("/liveness")[0] == 200


@pytest.mark.promise("M-201")
def test_without_the_parameter_nobody_listens(bare_world: World) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.start_felix(FELIX_HEALTHENABLED="false", FELIX_PROMETHEUSMETRICSENABLED="false")
    wait_for(lambda: "programming begins" in world.log())
    assert world.get("/liveness")[0] == 0
    world.put("felixconfigurations", "default", "FelixConfiguration", {"healthEnabled": True})
    assert world.get("/liveness")[0] == 0
    world.put("felixconfigurations", "node.node1", "FelixConfiguration", {"healthEnabled": True})
    assert world.get("/liveness")[0] == 0, "the environment is stronger"


@pytest.mark.promise("M-205", "F-102")
def test_a_felix_whose_loop_hangs_is_not_alive_until_it_goes_on(bare_world: World) -> None:
    """The program that writes rules does not return, as on a kernel that holds its lock."""
    world = bare_world
    hang, hanging = world.folder / "hang", world.folder / "hanging"
    shims = world.folder / "bin"
    shims.mkdir()
    for name in ("iptables-nft-restore", "ip6tables-nft-restore"):
        shim = shims / name
        wait = f'while [ -e "{hang}" ]; do : > "{hanging}"; sleep 0.1; done'
        # Felix starts these ahead: they hang when they have something to do.
        real = f'exec {shutil.which(name)} "$@" < "$0.$$"'
        shim.write_text(f'#!/bin/sh\ncat > "$0.$$"\n{wait}\n{real}\n')
        shim.chmod(0o755)
    world.environment |= mode("nft") | {"PATH": f"{shims}:{os.environ['PATH']}"}
    world.etcd.start()
    world.write_cluster()
    pod = world.wire("cali0000000000a", "10.65.0.1")
    # The loop turns every second (IptablesRefreshInterval), so seconds without a turn are long.
    limit = "InternalDataplaneMainLoop=5s"
    world.start_felix(FELIX_HEALTHTIMEOUTOVERRIDES=limit, FELIX_IPTABLESREFRESHINTERVAL="1")
    world.wait_ready()
    wait_for(lambda: world.get("/liveness")[0] == 200)

    hang.touch()
    try:
        world.put_endpoint("a", pod)
        wait_for(hanging.exists, "felix writes rules")
        wait_for(lambda: world.get("/liveness")[0] == 503)
        table = world.get("/liveness")[1]
        assert "InternalDataplaneMainLoop" in table
        assert world.get("/readiness")[0] == 503
    finally:
        hang.unlink()
    wait_for(lambda: world.get("/liveness")[0] == 200)
    wait_for(lambda: world.route("10.65.0.1/32"))
