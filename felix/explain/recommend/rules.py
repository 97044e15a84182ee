"""From talks of a group to rules: each peer once, its ports merged, peers of one label joined.

Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from felix.calc.labels import WITH_PORTS
from felix.explain.recommend.peers import Peer
from felix.explain.recommend.seen import Talk
from flows.record import End
from libcalico.selectors.selectors import Compare, InSet

Signature = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Permit:
    """What one rule allows: a peer, a protocol, and ports where the protocol has some."""

    peer: Peer
    protocol: int
    ports: tuple[int, ...]


def permits(talks: Iterable[Talk], peers: Callable[[End], tuple[Peer, ...]]) -> list[Permit]:
    """The fewest rules for these talks, in a fixed order."""
    table: dict[Peer, dict[int, set[int]]] = {}
    for talk in talks:
        for peer in peers(talk.peer):
            ports = table.setdefault(peer, {}).setdefault(talk.protocol, set())
            if talk.protocol in WITH_PORTS:
                ports.add(talk.port)
    alike: dict[Signature, list[Peer]] = {}
    for peer, protocols in table.items():
        signature = tuple(
            (number, tuple(sorted(protocols[number]))) for number in sorted(protocols)
        )
        alike.setdefault(signature, []).append(peer)
    rules = [
        Permit(peer, protocol, ports)
        for signature, those in alike.items()
        for peer in joined(those)
        for protocol, ports in signature
    ]
    return sorted(rules, key=lambda one: (one.peer.rank, one.protocol, one.ports))


def joined(peers: Iterable[Peer]) -> list[Peer]:
    """Peers of one namespace that differ in the value of one label: one peer."""
    together: dict[object, Peer] = {}
    for peer in sorted(peers, key=lambda one: one.rank):
        term = peer.terms[0] if len(peer.terms) == 1 else None
        if not isinstance(term, Compare | InSet) or (isinstance(term, InSet) and term.negated):
            together[peer] = peer
            continue
        which = (peer.namespace, peer.bare, term.label)
        known = together.get(which)
        values = _values(peer) if known is None else _values(peer) | _values(known)
        only = min(values)
        own = Compare(term.label, "==", only) if len(values) == 1 else InSet(
            term.label, frozenset(values))  # fmt: skip
        together[which] = replace(peer, terms=(own,))
    return list(together.values())


def _values(peer: Peer) -> set[str]:
    term = peer.terms[0]
    if isinstance(term, Compare):
        return {term.value}
    assert isinstance(term, InSet)
    return set(term.values)
