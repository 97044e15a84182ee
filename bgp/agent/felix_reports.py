"""What felix says over `node.sock`: the paths that it refuses, this node's addresses, and which
addresses of blocks are borrowed.

While felix is away its last word counts, and over a restart what was saved: nothing is withdrawn
because one of the two starts anew.

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from bgp.cluster.view import Changed, ClusterView
from bgp.speaker.interface import IPAddress, IPNetwork
from libcalico.local.node_api import Borrowed, BorrowedEnd

log = logging.getLogger(__name__)

FELIX_REFUSED_SHOWN = 100


class FelixReports:
    """`refused`: by prefix, why. `local_addresses`: those that felix sees."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.local_addresses: list[str] = []
        self._named: set[IPNetwork] | None = None
        """The blocks that this felix named; None: it has named all."""

    def connected(self) -> None:
        """A felix begins: it reports anew what it refuses, and what is borrowed."""
        self.refused.clear()
        self._named = set()

    def recall(
        self, view: ClusterView, borrowed: Mapping[IPNetwork, Mapping[IPAddress, str]]
    ) -> None:
        """What was borrowed before the restart is so until felix has named all."""
        for block, users in borrowed.items():
            view.lend(block, users)

    def borrow(self, view: ClusterView, message: Borrowed | BorrowedEnd) -> Changed:
        """Take what is borrowed; returns what it may alter."""
        if isinstance(message, Borrowed):
            block = ip_network(message.block)
            if self._named is not None:
                self._named.add(block)
            return view.lend(block, {ip_address(a): node for a, node in message.users.items()})
        named, self._named = self._named, None
        changed = Changed.NOTHING
        for block in view.ownership.lent.keys() - named if named is not None else ():
            changed |= view.lend(block, {})
        return changed

    def refuse(self, prefix: str, reason: str) -> None:
        """A path is refused, or (no reason) no longer; the oldest ones are forgotten."""
        if not reason:
            self.refused.pop(prefix, None)
            return
        log.warning("felix refuses a path: %s", reason, extra={"net": prefix})
        self.refused[prefix] = reason
        if len(self.refused) > FELIX_REFUSED_SHOWN:
            self.refused.pop(next(iter(self.refused)))

    def own_addresses(self, view: ClusterView) -> frozenset[IPAddress]:
        """This node's addresses: of the datastore, and those that felix sees."""
        me = view.nodes.get(view.me)
        seen = {ip_address(text) for text in self.local_addresses}
        return frozenset(seen | set(me.addresses if me else ()))
