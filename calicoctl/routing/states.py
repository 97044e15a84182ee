"""The live state of the sessions of a topology: what both ends tell. Pure.

Tested in `tests/calicoctl/test_bgp_live.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from calicoctl.routing.topology import Link, Topology
from calicoctl.status.values import DOWN, STATE_WORDS, UNKNOWN, UP, Session

Told = Mapping[tuple[str, str], Session]
"""Sessions by (node, address of the peer)."""


def with_states(whole: Topology, sessions: Iterable[Session]) -> Topology:
    """The topology with the state of each link; down if one end says so."""
    known: dict[tuple[str, str], Session] = {}
    own: dict[str, set[str]] = {}
    for one in sessions:
        known[one.node, one.address] = one
        if one.peer:
            own.setdefault(one.peer, set()).add(one.address)
    return replace(whole, links=[_with_state(link, known, own) for link in whole.links])


def _with_state(link: Link, known: Told, own: Mapping[str, set[str]]) -> Link:
    ends = [known.get((link.near, str(link.address)))]
    for address in own.get(link.near, ()):
        if (":" in address) == (link.address.version == 6):
            ends.append(known.get((link.far, address)))
    telling = [one for one in ends if one is not None and one.state != UNKNOWN]
    down = [one for one in telling if one.state == DOWN]
    if down:
        why = "; ".join(dict.fromkeys(filter(None, (one.why for one in down))))
        return replace(link, state=DOWN, why=why)
    return replace(link, state=UP) if telling else link


def counted(links: Iterable[Link]) -> str:
    """How many sessions are in which state, in words."""
    states = Counter(link.state for link in links)
    return ", ".join(
        f"{states[state]} {word}" for state, word in STATE_WORDS.items() if states[state]
    )
