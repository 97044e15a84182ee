"""The wall clock jumps by an hour, forward and back, under felix and calico-cni.

Both run with a clock that jumps (libfaketime). What is measured in seconds goes on: rules and
routes are read back, pods come and go, the status files are fresh, and a pending DEL is finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cni.supervised import supervised
from tests.cni.world import World, changed, node_world, pod_namespace, result_of, start_felix
from tests.support.patience import until
from tests.support.wall_clock import WallClock

HOUR = 3600
WAITS = {"policy_setup_timeout_seconds": 60}
SIGN = "/calico/felix/v2/no-region/host/node1/last_reported_status"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.mark.asyncio
async def test_nothing_that_is_measured_in_seconds_follows_the_wall_clock(
    node: World, tmp_path: Path
) -> None:
    clock = WallClock(tmp_path)
    felix = start_felix(
        node,
        FELIX_ROUTEREFRESHINTERVAL="2",
        FELIX_IPTABLESREFRESHINTERVAL="2",
        FELIX_REPORTINGINTERVALSECS="1",
        FELIX_REPORTINGTTLSECS="30",
        **clock.environment,
    )
    status = felix.socket.parent.parent / "status" / "felix.json"
    own = node.settings.status / "cni.json"
    async with node.etcd.connect() as store:
        await node.prepare(store)
    settings = changed(node.settings, felix_socket=felix.socket)
    shown = node.space.run
    try:
        with (
            pod_namespace() as stays,
            pod_namespace() as comes,
            supervised(settings, node.etcd.endpoint, tmp_path / "cni.log", clock.environment),
        ):
            result = result_of(await node.add(stays, "stays", config=WAITS))
            address = result["ips"][0]["address"].partition("/")[0]
            route, chain = f"{address} dev cali", f"cali-tw-{node.links()[0]}"
            await until(lambda: node.etcd.get(SIGN))
            for seconds in (-HOUR, HOUR, 0):
                clock.jump(seconds)
                # Rules and routes are read back as often as ever.
                node.space.run("ip", "route", "delete", address)
                node.space.run("iptables-nft", "-F", chain)
                await until(lambda: route in shown("ip", "route"), pause=0.1)
                await until(lambda: f"-A {chain} " in shown("iptables-nft-save"), pause=0.1)
                # Life sign and status files go on.
                before = node.etcd.get(SIGN), status.read_bytes(), own.read_bytes()
                await until(lambda b=before: node.etcd.get(SIGN) != b[0])  # type: ignore[misc]
                await until(lambda b=before: status.read_bytes() != b[1])  # type: ignore[misc]
                await until(lambda b=before: own.read_bytes() != b[2])  # type: ignore[misc]
                result_of(await node.add(comes, "comes", config=WAITS))
                assert (await node.delete(comes, "comes")).status == 0
                await until(lambda: json.loads(status.read_bytes())["ready"])
            # A DEL that waits is finished, whatever time its record has.
            clock.jump(HOUR)
            node.etcd.stop()
            assert (await node.delete(stays, "stays")).status == 0
            assert list(node.settings.pending.glob("*.json"))
            clock.jump(-HOUR)
            node.etcd.start()
            await until(lambda: not list(node.settings.pending.glob("*.json")))
        node.assert_clean()
    finally:
        felix.process.kill()
        felix.process.wait()
