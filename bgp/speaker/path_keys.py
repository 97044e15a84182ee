"""Keys of one peer's paths: a prefix, with the path id where there is one.

Hardly any path has an id (RFC 7911), and a large table holds no tuple for the others.
Tested in tests/bgp/test_rib.py.
"""

from __future__ import annotations

from bgp.speaker.interface import IPNetwork

PathKey = IPNetwork | tuple[IPNetwork, int]


def path_key(prefix: IPNetwork, path_id: int) -> PathKey:
    """The key of a path."""
    return (prefix, path_id) if path_id else prefix


def prefix_of(key: PathKey) -> IPNetwork:
    """The prefix in a key."""
    return key[0] if isinstance(key, tuple) else key


def path_id_of(key: PathKey) -> int:
    """The path id in a key."""
    return key[1] if isinstance(key, tuple) else 0
