"""What is held in place of peers that ExaBGP refuses: no definition of one peer harms another.

The agent validates what an operator writes, but ExaBGP has rules of its own. A configuration
that it refuses never ends a running child: the definitions at fault are found by halves, each
is held as it was before (or not at all), everything else is applied, and a condition names the
peer, the fields that differ and ExaBGP's words (BGP-8). A refusal that is no single
peer's leaves the whole configuration as it was. Another configuration is tried at once, the same
one after a pause: a full disk or a loaded machine may have been the reason.

Invariant:
  BGP-8  A definition that ExaBGP refuses changes no other session, and is named as a condition.
Tested in tests/bgp/test_refusals.py, also with a real ExaBGP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection

from bgp.speaker.exabgp.session import changed_fields
from bgp.speaker.interface import IPAddress, Peer

Peers = dict[IPAddress, Peer]
Complaint = Callable[[Collection[Peer]], Awaitable[str]]
"""ExaBGP's complaint about a configuration of these peers; empty if it accepts it."""

RETRY = 60.0
"""Seconds until the same configuration is tried once more."""


class Refusals:
    """The peers that were refused last, and what is held in their place."""

    def __init__(self) -> None:
        self._refused: Peers = {}
        self._instead: Peers = {}
        self._why: list[tuple[str, str]] = []
        self._again = 0.0

    def instead_of(self, desired: Peers, now: float) -> Peers:
        """The peers to hold: the desired ones, unless they were refused a moment ago."""
        if self._why and desired == self._refused and now < self._again:
            return self._instead
        return desired

    async def usable(
        self, desired: Peers, current: Peers, complaint: Complaint, now: float
    ) -> Peers:
        """As many of the desired peers as ExaBGP accepts; `current`: those that it has now."""
        first = await complaint(desired.values())
        if not first:
            self._why = []
            return desired
        suspects = [peer for peer in desired.values() if current.get(peer.address) != peer]
        guilty = [each async for each in _guilty(suspects, complaint)]
        names = {peer.address for peer, _ in guilty}
        instead = {
            address: current[address] if address in names else peer
            for address, peer in desired.items()
            if address not in names or address in current
        }
        why = [_words(peer, current.get(peer.address), said) for peer, said in guilty]
        if not guilty or (current and not instead) or await complaint(instead.values()):
            instead = current
            why = why or [("BGP speaker", f"the sessions stay as they are: ExaBGP says: {first}")]
        self._refused, self._instead, self._why = dict(desired), instead, why
        self._again = now + RETRY
        return instead

    def conditions(self, desired: Peers) -> list[tuple[str, str]]:
        """The peers whose definition is not the desired one, for an operator."""
        return list(self._why) if desired == self._refused else []


async def _guilty(suspects: list[Peer], complaint: Complaint) -> AsyncIterator[tuple[Peer, str]]:
    """The peers that ExaBGP refuses alone, found by halves."""
    if not suspects:
        return
    said = await complaint(suspects)
    if not said:
        return
    if len(suspects) == 1:
        yield suspects[0], said
        return
    middle = len(suspects) // 2
    for half in (suspects[:middle], suspects[middle:]):
        async for each in _guilty(half, complaint):
            yield each


def _words(peer: Peer, current: Peer | None, said: str) -> tuple[str, str]:
    subject = f"BGP peer {peer.address}"
    if current is None:
        return subject, f"ExaBGP refuses its definition, so there is no session: {said}"
    fields = ", ".join(changed_fields(current, peer))
    return subject, f"ExaBGP refuses its new {fields}; the session stays as it was: {said}"
