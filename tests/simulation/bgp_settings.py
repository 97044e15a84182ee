"""What operators set of BGP in the simulated cluster: the mesh, peers by selector, a filter.

`Settings` is what is stored; what each node is to be told follows from it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from libcalico.model.keys import ResourceKey
from tests.simulation.cluster import Cluster

Tell = Callable[[str], None]


@dataclass
class Settings:
    """`rejected`: the block that the peers' filter does not let out."""

    mesh: bool = True
    peered: bool = False
    rejected: str = ""

    @property
    def sessions(self) -> bool:
        """Whether nodes speak with each other."""
        return self.mesh or self.peered

    def passes(self, blocks: Collection[str]) -> set[str]:
        """What of these a node may tell another."""
        if not self.sessions:
            return set()
        filtered = self.peered and not self.mesh
        return {cidr for cidr in blocks if not (filtered and cidr == self.rejected)}

    @property
    def doubtful(self) -> str:
        """A block of which two peerings between the same nodes say different things."""
        return self.rejected if self.mesh and self.peered else ""

    async def change(
        self, cluster: Cluster, chance: Random, blocks: Collection[str], tell: Tell
    ) -> None:
        """An operator changes one of them."""
        await chance.choice((self._mesh, self._peer, self._filter))(
            cluster, chance, sorted(blocks), tell
        )

    async def _mesh(self, cluster: Cluster, _: Random, __: list[str], tell: Tell) -> None:
        self.mesh = not self.mesh
        tell(f"operator: mesh {self.mesh}")
        spec = {"nodeToNodeMeshEnabled": self.mesh, "asNumber": 64512}
        await cluster.resource("BGPConfiguration", "default", spec)

    async def _peer(self, cluster: Cluster, _: Random, __: list[str], tell: Tell) -> None:
        self.peered = not self.peered
        tell(f"operator: peers by selector {self.peered}")
        if not self.peered:
            await cluster.delete(ResourceKey("BGPPeer", "all"))
            return
        await self._write_filter(cluster)
        spec = {"nodeSelector": "all()", "peerSelector": "all()", "filters": ["out"]}
        await cluster.resource("BGPPeer", "all", spec)

    async def _filter(
        self, cluster: Cluster, chance: Random, blocks: list[str], tell: Tell
    ) -> None:
        self.rejected = chance.choice([*blocks, ""])
        tell(f"operator: the filter rejects {self.rejected!r}")
        await self._write_filter(cluster)

    async def _write_filter(self, cluster: Cluster) -> None:
        rule = {"action": "Reject", "matchOperator": "Equal", "cidr": self.rejected}
        await cluster.resource("BGPFilter", "out", {"exportV4": [rule] if self.rejected else []})
