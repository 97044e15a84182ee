"""The words and colours of drawings of a topology. Pure.

Tested in `tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

from calicoctl.routing.topology import Link, Place
from calicoctl.status.values import DOWN, STATE_WORDS, UNKNOWN, UP

COLOURS = {UP: "#2e7d32", DOWN: "#c62828", UNKNOWN: "#8a8a8a"}


def label(place: Place) -> list[str]:
    """The lines in a place's box."""
    about = f"AS {place.asn}"
    if place.reflector:
        about += f", reflector {place.reflector}"
    if place.draining:
        about += ", draining"
    return [place.name, about]


def words(link: Link) -> str:
    """A session in one line: its ends, kind, note, state and why."""
    about = " ".join(filter(None, (link.kind, link.note)))
    state = STATE_WORDS[link.state]
    told = f"{state}: {link.why}" if link.why else state
    return f"{link.near} - {link.far}: {about}; {told}"
