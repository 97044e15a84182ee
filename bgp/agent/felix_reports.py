"""What felix says over `node.sock`: the paths that it refuses, and this node's addresses.

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

from ipaddress import ip_address

from bgp.cluster.view import ClusterView
from bgp.speaker.interface import IPAddress

FELIX_REFUSED_SHOWN = 100


class FelixReports:
    """`refused`: by prefix, why. `local_addresses`: those that felix sees."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.local_addresses: list[str] = []

    def refuse(self, prefix: str, reason: str) -> None:
        """A path is refused; the oldest ones are forgotten."""
        self.refused[prefix] = reason
        if len(self.refused) > FELIX_REFUSED_SHOWN:
            self.refused.pop(next(iter(self.refused)))

    def accept(self, prefix: str) -> None:
        """A path is refused no longer."""
        self.refused.pop(prefix, None)

    def own_addresses(self, view: ClusterView) -> frozenset[IPAddress]:
        """This node's addresses: of the datastore, and those that felix sees."""
        me = view.nodes.get(view.me)
        seen = {ip_address(text) for text in self.local_addresses}
        return frozenset(seen | set(me.addresses if me else ()))
