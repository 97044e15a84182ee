"""Paths that `bgp` learned: which of them felix takes.

A speaker believes its peers; felix does not. From nodes of the cluster it takes only what lies
in a pool or where services have addresses. From a configured external peer it takes all that the
peer's filters let through, a default route included. No peer may pull this node's own pods,
addresses or link-local traffic away (architecture, "Data's way through the house").

There may be a hundred thousand: prefixes and next hops are packed (linux/prefixes.py), and
paths that differ in their prefix alone share one `Via`.

Invariants:
  PTH-1  No accepted path lies inside an own block, unless it is exactly an address of it that
         is lent to another node.
  PTH-2  A path of origin `node` lies inside a pool, a node's block or a range of services, and is
         not such a range itself.
  PTH-3  Until the first snapshot is complete nothing that the kernel has is taken away.
Tested in tests/felix/calc/test_learned_routes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from libcalico.host_address import is_host
from libcalico.local.node_api import Path
from linux import prefixes
from linux.prefixes import Networks, Prefix

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_NEVER = {
    "169.254.0.0/16": "link-local",
    "fe80::/10": "link-local",
    "127.0.0.0/8": "loopback",
    "::1/128": "loopback",
    "224.0.0.0/4": "multicast",
    "ff00::/8": "multicast",
}
_VIAS_KEPT = 10_000
"""Texts of next hops that are remembered; with more all are read anew."""


class Via(NamedTuple):
    """Where paths lead: their next hops' 4 or 16 bytes; `external`: no node of the cluster."""

    next_hops: tuple[bytes, ...]
    external: bool


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What the acceptance of paths depends on.

    `routed`: where pods may have addresses: all pools, disabled ones too, and blocks in no pool.
    """

    routed: frozenset[IPNetwork] = frozenset()
    own_blocks: frozenset[IPNetwork] = frozenset()
    lent: frozenset[IPAddress] = frozenset()
    own_addresses: frozenset[IPAddress] = frozenset()
    services: frozenset[IPNetwork] = frozenset()


class RouteAcceptance:
    """Decides which paths are refused, and why, by one state of the facts."""

    def __init__(self, facts: PathFacts) -> None:
        self._inside = Networks(map(prefixes.pack, facts.routed | facts.services))
        self._ranges = frozenset(
            prefixes.pack(n) for n in facts.services if n.prefixlen < n.max_prefixlen
        ) - frozenset(map(prefixes.pack, facts.routed))
        blocks = set(map(prefixes.pack, facts.own_blocks))
        # Most paths touch none of these: one look-up says so.
        self._closed = Networks(blocks | set(map(prefixes.parse, _NEVER)))
        self._lent = frozenset(map(prefixes.pack_host, facts.lent))
        self._own = frozenset(map(prefixes.pack_host, facts.own_addresses))
        self._own_packed = frozenset(address.packed for address in facts.own_addresses)

    def refusal(self, prefix: Prefix, via: Via) -> str:
        """Why a path is refused; empty if it is accepted."""
        closed = self._closed.cover(prefix)
        if closed:
            for text, kind in _NEVER.items():
                if Networks([prefixes.parse(text)]).cover(prefix):
                    return f"it is {kind}"
        if prefix in self._own:
            return "it is an address of this node"
        if not self._own_packed.isdisjoint(via.next_hops):
            return "its next hop is this node"
        if closed and prefix not in self._lent:
            return "it lies inside a block of this node"
        if via.external:
            return ""
        if not self._inside.cover(prefix):
            return "it comes from a node and lies in no pool"
        if prefix in self._ranges:
            return "it comes from a node and is a whole range of services"
        return ""


@dataclass
class PathTable:
    """The paths as `bgp` told them: a snapshot merged as it arrives, then changes (PTH-3).

    `version` grows with `malformed`.
    """

    complete: bool = False
    paths: dict[Prefix, Via] = field(default_factory=dict)
    malformed: dict[str, str] = field(default_factory=dict)
    version: int = 0
    _named: set[Prefix] | None = None
    _vias: dict[tuple[str, ...], Via | str] = field(default_factory=dict)

    def begin(self) -> None:
        """A snapshot starts: what it will not name goes at its end, not before."""
        self._named = set()
        self.malformed.clear()
        self.version += 1

    def change(self, updated: Iterable[Path], withdrawn: Iterable[str]) -> KeysView[Prefix]:
        """Take changes; returns the prefixes that differ now, in the order in which they came."""
        changed: dict[Prefix, None] = {}
        for text in withdrawn:
            self._accuse(text, "")
            try:
                prefix = prefixes.parse(text)
            except ValueError:
                continue
            if self.paths.pop(prefix, None) is not None:
                changed[prefix] = None
            if self._named is not None:
                self._named.discard(prefix)
        paths, named, malformed, parse = self.paths, self._named, self.malformed, prefixes.parse
        for path in updated:
            via = self._via(path)
            try:
                prefix = parse(path.prefix)
            except ValueError as error:
                self._accuse(path.prefix, str(error))
                continue
            if isinstance(via, str):
                self._accuse(path.prefix, via)
                if paths.pop(prefix, None) is not None:
                    changed[prefix] = None  # the path before it holds no longer (RFC 7606 2)
                continue
            if malformed:
                self._accuse(path.prefix, "")
            if named is not None:
                named.add(prefix)
            if paths.get(prefix) != via:
                paths[prefix] = via
                changed[prefix] = None
        return changed.keys()

    def _via(self, path: Path) -> Via | str:
        key = (path.origin, *path.next_hops)
        via = self._vias.get(key)
        if via is None:
            if len(self._vias) >= _VIAS_KEPT:
                self._vias.clear()
            via = self._vias[key] = parse_via(path)
        return via

    def _accuse(self, text: str, reason: str) -> None:
        if reason:
            self.malformed[text] = reason
            self.version += 1
        elif self.malformed.pop(text, None) is not None:
            self.version += 1

    def end(self) -> set[Prefix]:
        """The snapshot is complete; returns the prefixes that it did not name and that go."""
        gone = set() if self._named is None else self.paths.keys() - self._named
        for prefix in gone:
            del self.paths[prefix]
        self._named = None
        self.complete = True
        return gone


def parse_via(path: Path) -> Via | str:
    """Where a path leads, or why it leads nowhere."""
    try:
        hops = dict.fromkeys(map(ip_address, path.next_hops))
    except ValueError as error:
        return str(error)
    if not hops:
        return "it has no next hop"
    for hop in hops:
        if not is_host(hop):
            return f"its next hop {hop} is no host address"
    if path.origin not in ("node", "external"):
        return f"its origin {path.origin!r} is neither node nor external"
    return Via(tuple(hop.packed for hop in hops), path.origin == "external")
