"""A changed configuration takes effect at once.

Applied by `patches.apply`, after `replacing`. Standard library and ExaBGP only. Tested in
tests/bgp/test_keys.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Iterator

from exabgp.bgp import neighbor as neighbors
from exabgp.reactor import peer as peers
from exabgp.reactor.network.error import NetworkError

from bgp.speaker.exabgp.neighbor_options import options
from bgp.speaker.exabgp.upstream.exabgp_types import Neighbor, Peer


def prompt_change() -> None:
    """A peer that is defined anew while its handshake waits takes the change at once.

    So does one without a connection. ExaBGP looks only when the session is Established, or when
    the wait for an OPEN ends; a passive peer would lose the first connection after the change. And
    our options are part of the definition.

    Upstream: a changed definition waits for the end of the handshake.
    Fails without it: test_sessions.py, test_source_address.
    Remove when: ExaBGP takes a changed definition before Established, too.
    """
    establish, define = peers.Peer._establish, peers.Peer.reestablish
    same = neighbors.Neighbor.__eq__

    def equal(one: Neighbor, other: Neighbor) -> bool:
        return same(one, other) and options(one) == options(other)

    def run(self: Peer) -> Iterator[object]:
        for action in establish(self):
            if self._teardown:
                raise NetworkError("the peer is defined anew")
            yield action

    def define_anew(self: Peer, neighbor: Neighbor | None = None) -> None:
        define(self, neighbor)
        if self.proto is None and self.generator is None:
            self._reset()
            self._delay.reset()

    neighbors.Neighbor.__eq__ = equal
    peers.Peer._establish, peers.Peer.reestablish = run, define_anew


def apply() -> None:
    """From now on."""
    prompt_change()
