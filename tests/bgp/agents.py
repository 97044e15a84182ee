"""Agents that share a fabric of memory speakers and get the same batches: a cluster in a loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from bgp.agent.agent import Agent
from bgp.agent.publish import Publisher
from bgp.peering.peering import Settings
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.model.keys import AffinityKey, Key
from libcalico.model.resources.ipam import BlockAffinity
from tests.bgp.make import resource
from tests.bgp.memory_speaker import Fabric, MemorySpeaker

__all__ = ["Cluster", "affinity", "node", "resource"]


@dataclass
class Cluster:
    """Agents by node name."""

    fabric: Fabric = field(default_factory=Fabric)
    agents: dict[str, Agent] = field(default_factory=dict)
    speakers: dict[str, MemorySpeaker] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def add(self, name: str, kind: type[MemorySpeaker] = MemorySpeaker, **more: Any) -> Agent:
        speaker = self.speakers[name] = kind(self.fabric)
        publisher = Publisher(Path("/nonexistent/node.sock"))
        agent = self.agents[name] = Agent(name, speaker, publisher, Settings(), **more)
        self.tasks.append(asyncio.create_task(agent.follow_speaker()))
        self.tasks.append(asyncio.create_task(agent.keep_time()))
        return agent

    async def say(self, *changes: tuple[Key, Any], in_sync: bool = True) -> None:
        """The datastore tells all agents."""
        updates = [
            Update(key, None if value is None else Entry(key, value, 1, b""))
            for key, value in changes
        ]
        for agent in self.agents.values():
            await agent.apply_batch(SyncBatch(updates, in_sync))
        await self.calm()

    async def calm(self) -> None:
        """Until nothing happens any more."""
        for _ in range(60):
            await asyncio.sleep(0)

    def table(self, name: str) -> dict[str, list[str]]:
        """What a node's felix is told."""
        current = self.agents[name].publisher.current
        return {str(prefix): list(path.next_hops) for prefix, path in current.items()}

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def node(number: int, **more: Any) -> tuple[Key, Any]:
    """Node `n<number>` at 10.0.0.<number>."""
    metadata = {name: more.pop(name) for name in ("labels", "annotations") if name in more}
    bgp = {"ipv4Address": f"10.0.0.{number}/24", **more}
    return resource("Node", f"n{number}", {"bgp": bgp}, **metadata)


def affinity(name: str, cidr: str) -> tuple[Key, Any]:
    """A confirmed block."""
    return AffinityKey(name, ip_network(cidr)), BlockAffinity()
