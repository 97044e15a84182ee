"""VXLAN for both families: vxlan/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import pods, stream
from lab.demo import look
from tests.lab_scenarios.scene import Scene, scene

DEVICES = {4: "vxlan.calico", 6: "vxlan-v6.calico"}
PINGS = 5


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("vxlan") as made:
        yield made


@pytest.mark.promise("F-58", "F-60", "M-192")
def test_1_a_device_for_each_family(made: Scene) -> None:
    for node in made.lab.nodes:
        for device in DEVICES.values():
            # Felix hears of the pools by itself: no pod's ADD waits for its device.
            made.eventually(
                lambda node=node, device=device: (  # type: ignore[misc]
                    device in made.text(node.name, "ip", "-o", "link")
                ),
                f"{node.name} has {device}",
            )
            told = node.run(["ip", "-d", "-j", "link", "show", device]).stdout
            data = json.loads(told)[0]["linkinfo"]["info_data"]
            assert (data["id"], data["port"]) == (4096, 4789)
        assert look.processes(node, "calico-bgp") == []


@pytest.mark.promise("F-60", "M-132")
def test_2_pods_reach_pods_in_both_families(made: Scene) -> None:
    assert all(len(pod.addresses) == 2 for pod in made.pods.values())
    made.connected()


@pytest.mark.promise("F-60")
def test_3_all_ways_lead_into_the_tunnels(made: Scene) -> None:
    names = list(made.pods)
    for here in names:
        for there in names:
            if here != there:
                for version, device in DEVICES.items():
                    block = made.block(made.pods[there], version)
                    ways = made.ways(made.pods[here].node, block)
                    assert {dev for _, dev in ways} == {device}, (here, block, ways)


@pytest.mark.promise("F-58", "F-60")
def test_4_the_router_forwards_wrapped_packets_only(made: Scene) -> None:
    for version, pool in ((4, "10.65."), (6, "fd65:")):
        assert not [r for r in made.routes("router", version) if r["dst"].startswith(pool)]
    source, *_, target = made.pods.values()
    for address in target.addresses:
        counting = stream.begin(made.lab.router, None, "count", "4789")
        assert pods.answers(made.lab, source, address, count=PINGS)
        # Each way passes two interfaces of the router, and its bridge.
        assert sum(counting.finish()["arrived"].values()) >= 2 * PINGS


@pytest.mark.promise("F-34")
def test_5_a_disabled_pool_leaves_its_pods_alone(made: Scene) -> None:
    """Its tunnel addresses move to the pool that gives some: felix's routes follow."""
    made.disabled_pool_leaves_pods_alone("four", "Always")

    def moved() -> bool:
        nodes = look.etcd(made.lab, f"{look.RESOURCES}/nodes/").values()
        return all(
            node["spec"].get("ipv4VXLANTunnelAddr", "").startswith("10.67.") for node in nodes
        )

    made.eventually(moved, "all tunnels have addresses of the second pool")
    made.connected()


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
