"""An etcd that is full (alarm NOSPACE) under a node with pods: it answers and takes nothing.

A real etcd that ran into its quota, as an operator meets it, with the daemon, felix and kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni.node import del_queue
from tests.cni.world import World, node_world, pod_namespace, result_of, start_felix
from tests.support.etcd import SMALL_QUOTA
from tests.support.patience import until

FULL = "etcd is full (alarm NOSPACE)"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        world.etcd.restart_with(SMALL_QUOTA)
        yield world


def conditions(file: Path) -> str:
    try:
        return json.dumps(json.loads(file.read_text())["conditions"])
    except (OSError, ValueError):
        return ""


def routed(node: World, address: str) -> bool:
    return f"{address} dev cali" in node.space.run("ip", "route")


@pytest.mark.asyncio
async def test_nothing_is_lost_while_etcd_is_full_and_felix_goes_on(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What etcd refused is not carried out later, and looking again changes nothing.
    monkeypatch.setattr(del_queue, "LATE_SECONDS", 1.0)
    monkeypatch.setattr(del_queue, "RESCAN_SECONDS", 0.5)
    felix = start_felix(node, FELIX_REPORTINGINTERVALSECS="1")
    status = felix.socket.parent.parent / "status" / "felix.json"
    waits = {"policy_setup_timeout_seconds": 60}
    try:
        with pod_namespace() as stays, pod_namespace() as ends, pod_namespace() as late:
            async with node.daemon(felix_socket=felix.socket) as daemon:
                own = node.settings.status / "cni.json"
                await until(lambda: daemon.context.felix.connected)
                address = result_of(await node.add(stays, "stays", config=waits))["ips"][0]
                text = address["address"].partition("/")[0]
                chain = f"cali-tw-{node.links()[0]}"
                result_of(await node.add(ends, "ends", config=waits))
                stored = node.endpoints()
                node.etcd.fill()

                refused = await node.add(late, "late", config=waits)
                assert refused.error["code"] == 11
                assert FULL in refused.error["msg"] + refused.error.get("details", "")
                assert "alarm disarm" in refused.error["msg"] + refused.error.get("details", "")
                assert node.endpoints() == stored
                assert (node.in_use(), len(node.links())) == (2, 2)
                told = await node.cni("STATUS", None, "", config={"cniVersion": "1.1.0"})
                assert (told.error["code"], FULL in told.error["msg"]) == (50, True)
                await until(lambda: FULL in conditions(own))
                await until(lambda: FULL in conditions(status))
                assert (await node.delete(ends, "ends")).status == 0
                assert len(node.links()) == 1
                # What somebody removes of a rule or a route, felix puts back.
                node.space.run("ip", "route", "delete", text)
                node.space.run("iptables-nft", "-F", chain)
                await until(lambda: routed(node, text))
                shown = node.space.run
                await until(lambda: f"-A {chain} " in shown("iptables-nft-save"), pause=0.1)

                node.etcd.make_room()
                await until(lambda: daemon.context.journal.count() == 0)
                await until(lambda: FULL not in conditions(own) and own.exists())
                await until(lambda: FULL not in conditions(status))
                assert node.in_use() == 1
                result_of(await node.add(late, "late", config=waits))
                assert (await node.delete(late, "late")).status == 0
                assert (await node.delete(stays, "stays")).status == 0
        node.assert_clean()
    finally:
        felix.process.kill()
        felix.process.wait()
