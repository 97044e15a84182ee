"""Blocks that stand without a pool: it was removed before its last pods.

`calicoctl delete` gives up the claims of a pool and removes it; blocks in use stay until their
last address is released, and so does what leads there.

Tested in tests/felix/calc/test_pools.py (hypothesis).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from felix.calc.blocks import BlockFacts
from felix.calc.pools import IPNetwork, Pool
from linux import prefixes
from linux.prefixes import Networks

_VIRTUAL = "virtual:"
"""How owners of blocks begin that are no nodes: services have their own ranges."""


class StandaloneBlocks:
    """The nodes' blocks that lie in no pool (PLR-1).

    Told what changes, so that a pod start among thousands of blocks costs one look-up.
    """

    def __init__(self, pools: Mapping[str, Pool], blocks: Mapping[IPNetwork, BlockFacts]) -> None:
        self._pools, self._blocks = pools, blocks
        self._covered = Networks(())
        self._networks: set[IPNetwork] = set()

    @property
    def networks(self) -> frozenset[IPNetwork]:
        """These blocks."""
        return frozenset(self._networks)

    def pools_changed(self) -> None:
        """A pool came, changed or went."""
        self._covered = Networks(prefixes.pack(pool.network) for pool in self._pools.values())
        self._networks = {cidr for cidr in self._blocks if self._alone(cidr)}

    def block_changed(self, cidr: IPNetwork) -> bool:
        """A block came, changed or went; returns whether `networks` differ now."""
        if self._alone(cidr) == (cidr in self._networks):
            return False
        self._networks ^= {cidr}
        return True

    def complaints(self, pods: Iterable[Sequence[IPNetwork]]) -> dict[str, str]:
        """What these pods lost with their pool, by block."""
        sizes = {(cidr.version, cidr.prefixlen) for cidr in self._networks}
        pods_of = Counter(
            cidr
            for networks in pods
            for cidr in {
                ip_network(net.supernet(new_prefix=length))
                for net in networks
                for version, length in sizes
                if version == net.version and length <= net.prefixlen
            }
            & self._networks
        )
        return {
            f"block {cidr}": f"lies in no IPPool, and {pods_of[cidr]} pod(s) of this node have"
            " addresses of it: tunnel, natOutgoing and disableBGPExport went with their pool. Make"
            " the pool again, with disabled: true, or start these pods again"
            for cidr in sorted(pods_of, key=str)
        }

    def _alone(self, cidr: IPNetwork) -> bool:
        facts = self._blocks.get(cidr)
        if facts is None or facts.owner.startswith(_VIRTUAL):
            return False
        return not self._covered.cover(prefixes.pack(cidr))
