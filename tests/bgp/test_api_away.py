"""A restart while the Kubernetes API is away, and the datastore is not: nothing that was goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bgp.agent.agent import Agent
from bgp.agent.saved_decisions import SavedDecisions
from bgp.cluster.services import ServiceBatch
from bgp.peering.passwords import Passwords, SecretRef
from tests.bgp.agents import Cluster, node, resource
from tests.bgp.test_agent_routing import BLOCKS, POOL, RANGES, Secrets, Services, local_service
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
REF = SecretRef("tor", "key")
TOR = {
    "peerIP": "10.0.0.254",
    "asNumber": 64500,
    "password": {"secretKeyRef": {"name": "tor", "key": "key"}},
}
SERVICE = "198.51.100.7/32"
PICTURE = (POOL, node(1), BLOCKS[0], RANGES, resource("BGPPeer", "tor", TOR))


class Life:
    """One run of the agent of n1; all its lives share a memory."""

    def __init__(self, folder: Path) -> None:
        self.cluster, self.services, self.secrets = Cluster(), Services(), Secrets()
        self.agent: Agent = self.cluster.add(
            "n1",
            memory=SavedDecisions(folder / "last.json"),
            service_source=self.services,
            password_source=self.secrets,
            service_patience=0.05,
        )
        works = [
            self.agent.follow_services(self.services),
            self.agent.follow_passwords(self.secrets),
            self.agent._services_in_time(),
        ]
        self.cluster.tasks += [asyncio.create_task(work) for work in works]

    async def tell(self, *more: Any) -> None:
        """The datastore answers."""
        await self.cluster.say(*PICTURE, *more)
        await until(lambda: self.agent.in_sync, "decided")
        await self.cluster.calm()

    async def serve(self, *nodes: str) -> None:
        """The Kubernetes API tells of services."""
        self.services.queue.put_nowait(ServiceBatch(((("ns", "web"), local_service(*nodes)),)))
        await self.cluster.calm()

    async def unlock(self, known: Passwords) -> None:
        """It tells of passwords."""
        self.secrets.queue.put_nowait(known)
        await self.cluster.calm()

    def passwords(self) -> list[str]:
        return [each.peer.password for each in self.agent.plan.peers]

    def offered(self) -> set[str]:
        return {str(prefix) for prefix in self.agent.routing.offered}

    def unconfirmed(self) -> set[str]:
        return {subject for subject, _ in self.agent.conditions()}


async def first(folder: Path) -> None:
    """A life in which everything answers."""
    life = Life(folder)
    await life.serve("n1")
    await life.tell()
    await life.unlock(Passwords({REF: "canary-1"}))
    assert life.passwords() == ["canary-1"]
    assert SERVICE in life.offered()
    assert life.unconfirmed() == set()
    await life.cluster.stop()


@pytest.mark.promise("F-41", "F-47")
async def test_sessions_and_service_addresses_stay(tmp_path: Path) -> None:
    """Both are conditions meanwhile; the API's word replaces them. Root alone reads the memory."""
    await first(tmp_path)
    assert (tmp_path / "last.json").stat().st_mode & 0o777 == 0o400
    life = Life(tmp_path)
    await life.tell()
    assert life.passwords() == ["canary-1"]
    assert life.agent.plan.refused == ()
    assert SERVICE in life.offered()
    assert life.unconfirmed() == {"BGP passwords", "Kubernetes services"}
    assert "canary" not in str(life.agent.describe())
    # No answer is no answer; the next life remembers, too.
    problem = "10.96.0.1:443: no route to host"
    await life.unlock(Passwords({}, {REF: problem}, {REF}))
    assert life.passwords() == ["canary-1"]
    assert problem in str(life.agent.describe()["conditions"])
    await life.cluster.stop()
    life = Life(tmp_path)
    await life.tell()
    assert life.passwords() == ["canary-1"]
    assert SERVICE in life.offered()
    await life.unlock(Passwords({REF: "canary-2"}))
    assert life.passwords() == ["canary-2"]
    await life.serve("n2")
    assert SERVICE not in life.offered()
    assert life.unconfirmed() == set()
    await life.cluster.stop()


async def test_what_is_said_to_be_gone_is_gone(tmp_path: Path) -> None:
    """A Secret that was deleted refuses its peering, and its old value never comes back (PWD-1)."""
    await first(tmp_path)
    life = Life(tmp_path)
    await life.tell()
    await life.unlock(Passwords({}, {REF: "there is no such Secret"}))
    assert life.passwords() == []
    assert [each.source for each in life.agent.plan.refused] == ["BGPPeer(tor)"]
    await life.unlock(Passwords({}, {REF: "not read yet"}, {REF}))
    assert life.passwords() == []
    await life.cluster.stop()


async def test_the_ranges_of_now_count(tmp_path: Path) -> None:
    """ADV-8: an address outside them is not announced, whatever was before."""
    await first(tmp_path)
    life = Life(tmp_path)
    ranges = {"serviceLoadBalancerIPs": [{"cidr": "203.0.113.0/24"}]}
    await life.tell(resource("BGPConfiguration", "default", ranges))
    assert SERVICE not in life.offered()
    assert "203.0.113.0/24" in life.offered()
    await life.cluster.stop()


async def test_a_first_start_goes_on_without(tmp_path: Path) -> None:
    """Nothing to remember: the peering is refused and named, and services are a condition."""
    life = Life(tmp_path)
    await life.tell()
    assert life.passwords() == []
    assert SERVICE not in life.offered()
    assert "Kubernetes services" in life.unconfirmed()
    await life.cluster.stop()
