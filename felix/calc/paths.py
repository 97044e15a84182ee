"""Paths that `bgp` learned: which of them felix takes.

A speaker believes its peers; felix does not. From nodes of the cluster it takes only what
lies in an enabled pool; from a configured external peer whatever that peer's filters let
through, a default route included. Nobody may pull this node's own pods, addresses or
link-local traffic away (architecture, "Data's way through the house").

Invariants:
  PTH-1  No accepted path lies inside an own block, unless it is exactly an address of it that
         is lent to another node.
  PTH-2  A path of origin `node` lies inside an enabled pool.
  PTH-3  Until the first snapshot is complete nothing that the kernel has is taken away.
Tested in tests/felix/test_calc_paths.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from libcalico.local.node_api import Path

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_NEVER = (
    (ip_network("169.254.0.0/16"), "link-local"),
    (ip_network("fe80::/10"), "link-local"),
    (ip_network("127.0.0.0/8"), "loopback"),
    (ip_network("::1/128"), "loopback"),
    (ip_network("224.0.0.0/4"), "multicast"),
    (ip_network("ff00::/8"), "multicast"),
)


@dataclass(frozen=True, slots=True)
class LearnedPath:
    """A path with its texts parsed."""

    prefix: IPNetwork
    next_hops: tuple[IPAddress, ...]
    external: bool


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What the acceptance of paths depends on."""

    pools: frozenset[IPNetwork] = frozenset()
    own_blocks: frozenset[IPNetwork] = frozenset()
    lent: frozenset[IPAddress] = frozenset()
    own_addresses: frozenset[IPAddress] = frozenset()


def parse(path: Path) -> LearnedPath | str:
    """The parsed path, or why it cannot be one."""
    try:
        prefix = ip_network(path.prefix)
        hops = tuple(dict.fromkeys(ip_address(text) for text in path.next_hops))
    except ValueError as error:
        return str(error)
    if not hops:
        return "it has no next hop"
    if path.origin not in ("node", "external"):
        return f"its origin {path.origin!r} is neither node nor external"
    return LearnedPath(prefix, hops, path.origin == "external")


def refusal(path: LearnedPath, facts: PathFacts) -> str:
    """Why a path is not taken; empty if it is."""
    prefix = path.prefix
    for network, word in _NEVER:
        if inside(prefix, network):
            return f"it is {word}"
    if prefix.prefixlen == prefix.max_prefixlen and prefix.network_address in facts.own_addresses:
        return "it is an address of this node"
    if any(hop in facts.own_addresses for hop in path.next_hops):
        return "its next hop is this node"
    lent = prefix.prefixlen == prefix.max_prefixlen and prefix.network_address in facts.lent
    if not lent and inside_any(prefix, facts.own_blocks):
        return "it lies inside a block of this node"
    if not path.external and not inside_any(prefix, facts.pools):
        return "it comes from a node and lies in no enabled pool"
    return ""


def inside(prefix: IPNetwork, network: IPNetwork) -> bool:
    """Whether `prefix` is `network` or a part of it; never across families."""
    return prefix.version == network.version and prefix.subnet_of(network)  # type: ignore[arg-type]


def inside_any(prefix: IPNetwork, networks: frozenset[IPNetwork]) -> bool:
    """Whether `prefix` lies inside one of the networks; costs the number of their lengths."""
    if not networks:
        return False
    lengths = {n.prefixlen for n in networks if n.version == prefix.version}
    return any(
        prefix.supernet(new_prefix=length) in networks
        for length in lengths
        if length <= prefix.prefixlen
    )


@dataclass
class PathTable:
    """The paths as `bgp` told them: a snapshot merged as it arrives, then changes (PTH-3)."""

    complete: bool = False
    paths: dict[IPNetwork, LearnedPath] = field(default_factory=dict)
    malformed: dict[str, str] = field(default_factory=dict)
    _named: set[IPNetwork] | None = None

    def begin(self) -> None:
        """A snapshot starts: what it will not name goes at its end, not before."""
        self._named = set()
        self.malformed.clear()

    def change(self, updated: Iterable[Path], withdrawn: Iterable[str]) -> set[IPNetwork]:
        """Take changes; returns the prefixes that differ now."""
        changed: set[IPNetwork] = set()
        for text in withdrawn:
            self.malformed.pop(text, None)
            try:
                prefix = ip_network(text)
            except ValueError:
                continue
            if self.paths.pop(prefix, None) is not None:
                changed.add(prefix)
            if self._named is not None:
                self._named.discard(prefix)
        for path in updated:
            parsed = parse(path)
            if isinstance(parsed, str):
                self.malformed[path.prefix] = parsed
                continue
            self.malformed.pop(path.prefix, None)
            if self._named is not None:
                self._named.add(parsed.prefix)
            if self.paths.get(parsed.prefix) != parsed:
                self.paths[parsed.prefix] = parsed
                changed.add(parsed.prefix)
        return changed

    def end(self) -> set[IPNetwork]:
        """The snapshot is complete; returns the prefixes that it did not name and that go."""
        gone = set() if self._named is None else self.paths.keys() - self._named
        for prefix in gone:
            del self.paths[prefix]
        self._named = None
        self.complete = True
        return gone
