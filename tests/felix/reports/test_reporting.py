"""What felix reports to a real etcd: its life sign with a lease, and the states of endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.reports.reporting import Reports, Sizes, life_sign, region_of
from libcalico.datastore.interface import Put
from libcalico.model.keys import FelixStatusKey
from libcalico.model.resources.status import FelixStatus
from tests.felix.world import NODE, World
from tests.support.etcd import Etcd
from tests.support.patience import wait_for

ROOT = f"/calico/felix/v2/no-region/host/{NODE}"
STATUS, LAST = f"{ROOT}/status", f"{ROOT}/last_reported_status"
HOST_STATUS = f"/calico/felix/v1/host/{NODE}/endpoint"


def dataplane() -> Dataplane:
    return Dataplane(Calculator("n1"), PathTable(), Config(), lambda: None)


def test_a_life_sign_is_two_writes_and_one_ends_by_itself() -> None:
    config = Config(reporting_ttl=90.5, openstack_region="north")
    alive, last = life_sign("n1", config, 12.3456, True)
    assert isinstance(alive, Put)
    assert isinstance(last, Put)
    assert (alive.key, alive.ttl) == (FelixStatusKey("n1", "region-north"), 91)
    assert (last.key, last.ttl) == (FelixStatusKey("n1", "region-north", last=True), 0)
    assert isinstance(alive.value, FelixStatus)
    assert (alive.value.uptime, alive.value.first_update) == (12.346, True)
    assert alive.value == last.value
    assert region_of(Config()) == "no-region"


@pytest.mark.asyncio
async def test_no_life_sign_while_the_interval_is_zero_and_one_as_soon_as_it_is_not(
    etcd: Etcd,
) -> None:
    config = Config(reporting_interval=0)
    reports = Reports("n1", lambda: config, dataplane(), Sizes(first_report=0.0))
    async with etcd.connect() as store:
        task = asyncio.create_task(reports.alive(store))
        try:
            await asyncio.sleep(0.5)
            assert etcd.keys() == []
            last = "/calico/felix/v2/no-region/host/n1/last_reported_status"

            def first() -> bool | None:
                raw = etcd.get(last)
                return json.loads(raw)["first_update"] if raw is not None else None

            # One only, and the next ones when the interval is short.
            config = replace(config, reporting_interval=1000, reporting_ttl=1)
            reports.configured()
            await asyncio.to_thread(wait_for, lambda: first() is not None)
            assert first() is True
            config = replace(config, reporting_interval=0.2)
            reports.configured()
            await asyncio.to_thread(wait_for, lambda: first() is False)
            config = replace(config, reporting_interval=0)
            reports.configured()
            await asyncio.to_thread(wait_for, lambda: etcd.keys() == [last])
            told = etcd.get(last)
            await asyncio.sleep(0.5)
            assert etcd.get(last) == told
        finally:
            task.cancel()


@pytest.mark.asyncio
async def test_an_etcd_that_is_away_stops_nothing(etcd: Etcd) -> None:
    config = Config(reporting_interval=0.1)
    reports = Reports("n1", lambda: config, dataplane(), Sizes(first_report=0.0, timeout=0.3))
    key = "/calico/felix/v2/no-region/host/n1/status"
    async with etcd.connect() as store:
        task = asyncio.create_task(reports.alive(store))
        try:
            await asyncio.to_thread(wait_for, lambda: etcd.get(key))
            etcd.stop()
            await asyncio.sleep(1.0)
            assert not task.done()
            etcd.start()
            etcd.ctl("del", "--prefix", "/calico")
            await asyncio.to_thread(wait_for, lambda: etcd.get(key))
        finally:
            task.cancel()


def states(world: World) -> Callable[[], dict[str, str | None]]:
    def read() -> dict[str, str | None]:
        paths = [p for p in world.etcd.keys("/calico/felix/") if "/endpoint/" in p]
        return {path: json.loads(world.etcd.get(path) or b"{}").get("status") for path in paths}

    return read


@pytest.mark.promise("M-122")
def test_a_node_reports_itself_and_its_endpoints(bare_world: World) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    stale = f"{ROOT}/workload/k8s/default%2fgone/endpoint/eth0"
    foreign = stale.replace(NODE, "node2")
    for path in (stale, foreign):
        world.etcd.put(path, b'{"status":"up"}')
    world.put(
        "felixconfigurations",
        "default",
        "FelixConfiguration",
        {"reportingInterval": "1s", "reportingTTL": "3s", "endpointReportingEnabled": True},
    )
    world.add_pod("a", "cali0000000000a", "10.65.0.1")
    for name, interface in (("lost", "eth9"), ("uplink", "eth0"), ("all", "*")):
        spec = {"node": NODE, "interfaceName": interface, "profiles": ["kns.default"]}
        world.put("hostendpoints", name, "HostEndpoint", spec)
    world.start_felix()
    world.wait_ready()
    found = states(world)
    pod = f"{ROOT}/workload/k8s/default%2fa/endpoint/eth0"
    expected = {
        pod: "up",
        foreign: "up",
        f"{HOST_STATUS}/lost": "error",
        f"{HOST_STATUS}/uplink": "up",
        f"{HOST_STATUS}/all": "up",
    }
    wait_for(lambda: found() == expected, f"{found()}")
    assert world.etcd.get(pod) == b'{"status":"up"}'
    world.ip("link set cali0000000000a down")
    world.ip("link del cali0000000000a")
    wait_for(lambda: found().get(pod) == "down")
    world.delete_endpoint("a")
    wait_for(lambda: pod not in found())

    value = json.loads(wait_for(lambda: world.etcd.get(STATUS)) or b"")
    assert set(value) == {"time", "uptime", "first_update"}
    assert datetime.fromisoformat(value["time"]).tzinfo is not None
    assert value["uptime"] > 9
    world.stop_felix()
    wait_for(lambda: not world.etcd.get(STATUS), "the lease ends")
    assert json.loads(world.etcd.get(LAST) or b"")["uptime"] >= value["uptime"]
