"""Options of a peer that ExaBGP's configuration has no word for.

They stand in a neighbor's `description`, after the word `muslin`: `keepalive=SECONDS`,
`any-source`, `listen-any`. `config` writes them, the patches of ExaBGP read them.

Standard library only. Tested in tests/bgp/test_sessions.py.
"""

from __future__ import annotations

from bgp.speaker.exabgp.upstream.exabgp_types import Neighbor


def options(neighbor: Neighbor) -> dict[str, str]:
    """The options in a neighbor's description."""
    words = str(neighbor["description"] or "").strip('"').split()
    if words[:1] != ["muslin"]:
        return {}
    return {name: value for name, _, value in (word.partition("=") for word in words[1:])}
