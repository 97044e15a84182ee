"""The model of tests/cni/test_attachment_model.py where another IPAM plugin gives the addresses.

Played is a plugin that keeps one lease for each interface, as `host-local` does: a second ADD is
refused, and DEL of nothing is no error. It gives an interface the address that it had before. The
first ADD of an interface may fail, or be left by its caller.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cni.request.errors import CNIError, Code
from cni.request.request import Request, parse_request
from cni.socket import protocol
from ipam.records.blocks import IPAddress, parse_address
from libcalico import names
from tests.cni.test_attachment_model import Container, World, play, played, refusing
from tests.cni.world import network_config
from tests.ipam.world import put_node
from tests.size import examples


class Plugin:
    """The other end of the line. `leases`: by container and interface."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.leases: dict[tuple[str, str], IPAddress] = {}
        self._known: dict[tuple[str, str], IPAddress] = {}
        self.refuses = False

    async def run(self, message: protocol.Exec) -> protocol.ExecResult:
        owner = message.env["CNI_CONTAINERID"], message.env["CNI_IFNAME"]
        command = message.env["CNI_COMMAND"]
        self._world.trace.append(f"{command} of the plugin for {owner}")
        if self._world.dead:
            raise CNIError(Code.TRY_AGAIN_LATER, "played: the daemon is dead")
        await asyncio.sleep(0)
        if command == "DEL":
            self.leases.pop(owner, None)
            return protocol.ExecResult(0)
        first = owner not in self._known
        if self.refuses or owner in self.leases or (first and self._world.fails()):
            return protocol.ExecResult(1, '{"code": 99, "msg": "played"}')
        number = len(self._known) + 1
        self.leases[owner] = self._known.setdefault(owner, parse_address(f"198.51.100.{number}"))
        await asyncio.sleep(0)
        given = {"cniVersion": "1.0.0", "ips": [{"address": f"{self.leases[owner]}/24"}]}
        return protocol.ExecResult(0, json.dumps(given))


class Delegating(World):
    """`eth0` and `net1` have the plugin's addresses."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.wants = {name: {} for name in self.wants}
        self.line = self.plugin = Plugin(self)
        self.pod_cidrs: tuple[str, ...] = ("198.51.100.0/24",)

    async def start(self) -> None:
        await super().start()
        self.context.cluster.pod_cidrs = lambda _: self.pod_cidrs

    def request(self, command: str, container: Container, ifname: str) -> Request:
        request = super().request(command, container, ifname)
        if ifname == "net2":
            return request
        config = {**request.config.document, "ipam": {"type": "host-local", "subnet": "usePodCidr"}}
        return parse_request("calico", dict(request.env), json.dumps(config))

    def held(self) -> dict[IPAddress, str]:
        network = network_config({})["name"]
        leased = {
            address: names.handle_id(network, cid)
            for (cid, _), address in self.plugin.leases.items()
        }
        return {**super().held(), **leased}


def test_nothing_is_taken_from_the_living_where_a_plugin_gives_the_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(examples(120)):
        world = Delegating(seed, tmp_path / str(seed))
        played(world, monkeypatch)
        asyncio.run(play(world))


async def calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Delegating:
    """A world of one pod, `one`, which runs."""
    world = Delegating(0, tmp_path)
    played(world, monkeypatch)
    await put_node(world.store, "node1")
    await world.start()
    world.containers.append(Container("c1", "one"))
    await world.add(world.containers[0])
    assert world.plugin.leases
    return world


@pytest.mark.asyncio
async def test_a_repeated_add_that_is_not_written_leaves_the_pod_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: neither the undo nor the journal ends a pod that runs."""
    world = await calm(tmp_path, monkeypatch)
    world.store.before_commit = refusing
    await world.add(world.containers[0])
    world.store.before_commit = lambda _: None
    assert world.context.journal.count() == 0
    await world.journal()
    world.look()
    await world.finish()


@pytest.mark.asyncio
async def test_a_repeated_add_without_pod_cidr_leaves_the_pod_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is given back before it is asked for again: not where asking cannot be done."""
    world = await calm(tmp_path, monkeypatch)
    world.pod_cidrs = ()
    await world.add(world.containers[0])
    assert "podCIDR" in world.trace[-1]
    world.look()
    await world.finish()
