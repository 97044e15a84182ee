"""Whose addresses are whose: what each node of the cluster may announce. Pure.

A block affinity gives a block to a node. An address of it that another node uses is borrowed, and
belongs to the borrower alone: felix says so, which reads the endpoints.

  OWN-1  An address that is lent belongs to the borrower alone, not to the owner of the block.
  OWN-2  An affinity that is not confirmed gives single addresses, never the block.
Tested in tests/bgp/test_ownership.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import ip_network

from bgp.speaker.interface import IPAddress, IPNetwork

CONFIRMED = "confirmed"


@dataclass
class Ownership:
    """The affinities of all nodes and the addresses lent between them."""

    affinities: dict[IPNetwork, dict[str, str]] = field(default_factory=dict)
    """Block -> node -> state."""
    lent: dict[IPNetwork, dict[IPAddress, str]] = field(default_factory=dict)
    """Block -> address -> node, of the addresses that are not used by the block's owner."""
    _lengths: Counter[tuple[int, int]] = field(default_factory=Counter)
    _block_lengths: Counter[tuple[int, int]] = field(default_factory=Counter)

    def claim(self, host: str, cidr: IPNetwork, state: str | None) -> bool:
        """A node's affinity is now in `state` (None: gone); returns whether that is new."""
        states = self.affinities.get(cidr, {})
        if states.get(host) == state:
            return False
        if state is None:
            del states[host]
            if not states:
                del self.affinities[cidr]
                self._count(self._lengths, cidr, -1)
            return True
        if not states:
            self.affinities[cidr] = states
            self._count(self._lengths, cidr, 1)
        states[host] = state
        return True

    def lend(self, cidr: IPNetwork, lent: dict[IPAddress, str]) -> bool:
        """The lent addresses of a block are now these; returns whether that is new."""
        if self.lent.get(cidr, {}) == lent:
            return False
        if cidr not in self.lent:
            self._count(self._block_lengths, cidr, 1)
        if lent:
            self.lent[cidr] = lent
        else:
            del self.lent[cidr]
            self._count(self._block_lengths, cidr, -1)
        return True

    def owners(self, prefix: IPNetwork) -> frozenset[str]:
        """The nodes that may announce a prefix; none: it is no node's."""
        single = prefix.prefixlen == prefix.max_prefixlen
        if single:
            for cidr in self._around(prefix, self._block_lengths):
                borrower = self.lent.get(cidr, {}).get(prefix.network_address)
                if borrower is not None:
                    return frozenset({borrower})
        hosts: set[str] = set()
        for cidr in self._around(prefix, self._lengths):
            for host, state in self.affinities.get(cidr, {}).items():
                if single or state == CONFIRMED:
                    hosts.add(host)
        return frozenset(hosts)

    @staticmethod
    def _count(lengths: Counter[tuple[int, int]], cidr: IPNetwork, step: int) -> None:
        key = (cidr.version, cidr.prefixlen)
        lengths[key] += step
        if not lengths[key]:
            del lengths[key]

    @staticmethod
    def _around(prefix: IPNetwork, lengths: Counter[tuple[int, int]]) -> list[IPNetwork]:
        """The networks around a prefix that have a length that occurs."""
        return [
            prefix.supernet(new_prefix=length)
            for version, length in lengths
            if version == prefix.version and length <= prefix.prefixlen
        ]


def host_route(address: IPAddress) -> IPNetwork:
    """The prefix of one address."""
    return ip_network(address)
