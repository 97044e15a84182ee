"""The endpoints that `cni` offers over `node.sock`, and what it says of them later.

Invariant:
  NSV-1  An offer that was never stored goes ten seconds after the last connection that made it;
         one that was said to be stored ends by the datastore's word (felix.calc.standing).
Tested in tests/felix/agent/test_node_server.py and test_offers_first.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from felix.calc.endpoints import Endpoint, from_resource
from felix.dataplane.loop import Dataplane
from felix.node_peer import Peer
from libcalico.errors import MuslinError
from libcalico.local.node_api import Offer, Retract, Stored
from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value

OFFER_GRACE = 10.0

log = logging.getLogger(__name__)


class Offers:
    """Puts the offers of the peers into the calculation. `refused`: the reason by endpoint."""

    def __init__(self, node: str, plane: Dataplane) -> None:
        self._node, self._plane = node, plane
        self.refused: dict[ResourceKey, str] = {}
        self.on_offer: Callable[[], None] = lambda: None
        """Called for each offer: the datastore's event of the same endpoint may wait."""

    def offer(self, peer: Peer, offer: Offer) -> ResourceKey:
        """Put in an offer, or refuse it; returns its endpoint."""
        self.on_offer()
        key = ResourceKey("WorkloadEndpoint", offer.name, offer.namespace)
        self.refused.pop(key, None)
        try:
            raw = offer.value.encode()
            value = decode_value(key, raw)
            if value.spec.node != self._node:
                raise MuslinError(f"{key} belongs to node {value.spec.node}, this is {self._node}")
            endpoint = from_resource(key, value)
        except MuslinError as error:
            log.warning("an offer was refused: %s", error, extra={"object": str(key)})
            self.refused[key] = str(error)
            return key
        peer.offers[key] = endpoint
        self._plane.calc.endpoints.remember(raw, value, endpoint)
        if self._plane.calc.endpoints.offer(endpoint):
            self._plane.kick_some()
        return key

    def retract(self, peer: Peer, retraction: Retract) -> None:
        """Take back what a container was offered with, and what its peer awaits of it."""
        container_id = retraction.container_id
        key = ResourceKey("WorkloadEndpoint", retraction.name, retraction.namespace)
        known = self._plane.calc.endpoints.get(key)
        if retraction.forgotten and known is not None and known.container_id == container_id:
            self._plane.routing.flows_forgotten(known)
        _drop(peer, key, container_id)
        awaited = peer.awaits.get(key)
        if awaited is not None and awaited.container_id == container_id:
            del peer.awaits[key]
        if self._plane.calc.endpoints.retract(key, container_id):
            self._plane.kick_some()

    def stored(self, peer: Peer, stored: Stored) -> None:
        """End an offer that is stored: the datastore's version counts from its revision on."""
        key = ResourceKey("WorkloadEndpoint", stored.name, stored.namespace)
        _drop(peer, key, stored.container_id)
        if self._plane.calc.endpoints.settle(key, stored.container_id, stored.revision):
            self._plane.kick_some()

    def leave(self, peer: Peer) -> None:
        """Forget the offers of a peer that is gone, once their grace is over (NSV-1)."""
        if peer.offers:
            loop = asyncio.get_running_loop()
            loop.call_later(OFFER_GRACE, self._forget, list(peer.offers.values()))

    def _forget(self, offers: list[Endpoint]) -> None:
        # A peer that came back within the grace may have made the same offer: that is another one.
        for endpoint in offers:
            stored = self._plane.calc.endpoints.abandon(endpoint)
            if stored is None:
                continue
            if not stored:
                log.warning("offered but never stored", extra={"object": str(endpoint.key)})
            self._plane.kick_some()


def _drop(peer: Peer, key: ResourceKey, container_id: str) -> None:
    offered = peer.offers.get(key)
    if offered is not None and offered.container_id == container_id:
        del peer.offers[key]
