"""A node on which everything can be killed, and what its host holds, to compare with.

with faulty_node(folder) as stage:      # real etcd, felix and daemon
    supervising = asyncio.create_task(stage.restart_the_dead())
    ...
    await assert_as_before(stage, [pod])
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cni.executable import Done
from tests.cni.supervised import Supervisor, supervised
from tests.cni.world import (
    CIDR4,
    WAITS,
    Felix,
    World,
    changed,
    node_world,
    pod_namespace,
    put_pool,
    result_of,
    start_felix,
)
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

WAITING = WAITS
PATIENCE = HANG
SOON_CERTAIN = {"LATE_SECONDS": "5"}
"""An etcd that was killed carries nothing out late, and one that lives is not cut off."""


@dataclass
class Stage:
    """The node with everything that can be killed on it."""

    node: World
    felix: Felix
    daemon: Supervisor
    before: dict[str, list[str]]

    def kill_from(self, victim: str) -> str:
        """What the trap shall kill."""
        if victim == "etcd":
            assert self.node.etcd._process
            return str(self.node.etcd._process.pid)
        return str(self.felix.process.pid) if victim == "felix" else victim

    async def restart_the_dead(self) -> None:
        """As the node's supervisor: whoever died comes back at once. Until cancelled."""
        while True:
            if not self.node.etcd.running:
                self.node.etcd.launch()
            if self.felix.process.poll() is not None:
                self.felix.process = start_felix(self.node).process
            await asyncio.sleep(0.02)


def kernel(node: World) -> dict[str, list[str]]:
    """What the host's tables hold, in comparable form."""
    run = node.space.run
    sets = [re.sub(r"(comment|timeout) \S+", "", one) for one in run("ipset", "save").splitlines()]
    return {
        "links": sorted(one["ifname"] for one in json.loads(run("ip", "-j", "link"))),
        "addresses": sorted(run("ip", "-o", "address").split("\n")),
        "routes": sorted(run("ip", "route", "show", "table", "all").split("\n")),
        "routes6": sorted(run("ip", "-6", "route", "show", "table", "all").split("\n")),
        "neighbours": [n for n in run("ip", "neighbour").splitlines() if "cali" in n],
        "rules": sorted(r for r in run("iptables-nft-save").split("\n") if r[:1] in "-:"),
        "rules6": sorted(r for r in run("ip6tables-nft-save").split("\n") if r[:1] in "-:"),
        "sets": sorted(sets),
        "flows": [
            flow
            for flow in run("conntrack", "-L", "-o", "extended", check=False).splitlines()
            if "=10.65." in flow
        ],
    }


def files(node: World) -> list[str]:
    """What waits or was left on disk."""
    run = node.folder / "run" / "calico"
    status = Path(run, "endpoint-status")
    return [str(path) for folder in (node.settings.pending, status) for path in folder.glob("*")]


@contextmanager
def faulty_node(folder: Path) -> Iterator[Stage]:
    """The whole stage, warm; the calling thread is inside the node until the end."""
    with node_world(folder) as node:
        asyncio.run(prepare(node))
        felix = start_felix(node)
        settings = changed(node.settings, felix_socket=felix.socket, release_seconds=3.0)
        try:
            log = folder / "cni.log"
            with supervised(settings, node.etcd.endpoint, log, SOON_CERTAIN) as daemon:
                stage = Stage(node, felix, daemon, {})
                asyncio.run(warm(stage))
                yield stage
        finally:
            felix.process.kill()
            felix.process.wait()


async def prepare(node: World) -> None:
    async with node.etcd.connect() as store:
        await node.prepare(store)
        # One block is enough for all pods: a further one, with its route, would stay behind.
        await put_pool(store, "pool4", CIDR4, 25)


async def warm(stage: Stage) -> None:
    """The node's block is there already, and felix has its rules, as on any node that lives."""
    with pod_namespace("warm") as pod:
        await add(stage, pod, "warm")
        await delete(stage, pod, "warm")
    await until(lambda: not of_pods(stage.node))
    # The node's own link is as young as the node.
    await until(lambda: "tentative" not in stage.node.space.run("ip", "address"))
    stage.before = kernel(stage.node)


def of_pods(node: World) -> list[str]:
    """What felix has of pods."""
    lines = (node.space.run("ip", "route") + node.space.run("iptables-nft-save")).splitlines()
    return [line for line in lines if re.search(r"cali-[tf]w-|dev cali", line)]


async def add(stage: Stage, pod: Namespace, name: str, **more: Any) -> dict[str, Any]:
    """ADD until it succeeds: "try again later" is an answer while something comes back."""
    return result_of(await again(stage, "ADD", pod, name, **more))


async def delete(stage: Stage, pod: Namespace, name: str, **more: Any) -> None:
    done = await again(stage, "DEL", pod, name, **more)
    assert done.status == 0, done


async def again(stage: Stage, verb: str, pod: Namespace, name: str, **more: Any) -> Done:
    deadline = time.monotonic() + PATIENCE
    while True:
        done = await stage.node.cni(verb, pod, name, config=WAITING, **more)
        if done.status == 0 or done.error["code"] != 11 or time.monotonic() > deadline:
            return done
        await asyncio.sleep(0.1)


async def assert_as_before(stage: Stage, pods: Sequence[Namespace]) -> None:
    """Nothing is left, at most felix's time later."""
    for pod in pods:
        assert "eth0" not in pod.run("ip", "link")
    deadline = time.monotonic() + PATIENCE
    while True:
        left: dict[str, Any] = {
            "endpoints": list(stage.node.endpoints()),
            "handles": list(stage.node.handles()),
            "in use": stage.node.in_use(),
            "files": files(stage.node),
        }
        found = kernel(stage.node)
        left |= {
            kind: {"left": [*set(found[kind]) - set(was)], "lost": [*set(was) - set(found[kind])]}
            for kind, was in stage.before.items()
            if found[kind] != was
        }
        if not any(left.values()):
            return
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)


def reachable(node: World, address: str) -> bool:
    """From the node, which may reach its pods whatever the policy.

    One packet may be lost: felix may hear of the end of an earlier attempt that had the same
    address after this one's offer, and a moment before this one was stored.
    """
    ping = node.space.command("ping", "-c", "3", "-i", "0.2", "-W", "60", address)
    return subprocess.run(ping, capture_output=True, check=False).returncode == 0
