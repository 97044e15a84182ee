"""A changed configuration takes effect at once.

Applied by `patches.apply`, after `replacing`. Standard library and ExaBGP only. Tested in
tests/bgp/test_keys.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exabgp.bgp.neighbor import Neighbor
from exabgp.reactor import loop
from exabgp.reactor import peer as peers
from exabgp.reactor.network.error import NetworkError

from bgp.speaker.exabgp.neighbor_options import options


def prompt_change() -> None:
    """A peer that is defined anew while its handshake waits takes the change at once.

    So does one without a connection. ExaBGP looks only when the session is Established, or when
    the wait for an OPEN ends; a passive peer would lose the first connection after the change. And
    our options are part of the definition.

    Upstream: a changed definition waits for the end of the handshake.
    Fails without it: test_sessions.py, test_source_address.
    Remove when: ExaBGP takes a changed definition before Established, too.
    """
    establish, same, define = peers.Peer._establish, Neighbor.__eq__, peers.Peer.reestablish
    Neighbor.__eq__ = lambda one, other: same(one, other) and options(one) == options(other)

    def run(self: Any) -> Iterator[Any]:
        for action in establish(self):
            if self._teardown:
                raise NetworkError("the peer is defined anew")
            yield action

    def define_anew(self: Any, neighbor: Any = None) -> None:
        define(self, neighbor)
        if self.proto is None and self.generator is None:
            self._reset()
            self._delay.reset()

    peers.Peer._establish, peers.Peer.reestablish = run, define_anew


def no_lost_reload() -> None:
    """A reload is done at once, also while routes are still to be sent.

    ExaBGP drops the signal while its own tables have routes to send, without a word, and it
    is not sent again.

    Upstream: the signal of a reload is dropped while tables have routes to send.
    Fails without it: none: `sending` keeps those tables empty.
    Remove when: ExaBGP keeps the signal, or it is shown that those tables stay empty.
    """
    loop.Reactor._pending_adjribout = lambda _: False


def apply() -> None:
    """From now on."""
    prompt_change()
    no_lost_reload()
