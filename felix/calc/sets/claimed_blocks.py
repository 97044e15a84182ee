"""The nodes' blocks, and the addresses of them that others use: by claims and endpoints alone.

A block changes with each of its pods, so no block is read. A confirmed affinity says whose a block
is; who uses an address is said by the endpoints, and by the Nodes of their tunnels. Only an address
that is used on another node than its block's owner's, a *borrowed* one, is remembered. An address
in no known block belongs to no node: an endpoint alone must not draw packets from all nodes.

A block whose last claim goes while addresses of it are in use is known until the last of them is
gone (`left`): it has no owner, and each of its addresses has a way of its own.

Invariants:
  CLB-1  What is known depends on the claims, endpoints and Nodes that there are, not on the order
         in which they came; but for the blocks that were left.
  CLB-2  An address that the owner of its block uses is not borrowed.
  CLB-3  An address that a Node names as its tunnel's is borrowed by that node, not by an endpoint.
Tested in tests/felix/calc/test_claimed_blocks.py (hypothesis).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from felix.calc.blocks import BlockFacts
from felix.calc.sets.places import EndpointPlaces
from felix.calc.sets.population import texts
from libcalico.model.resources.ipam import BlockAffinity
from linux.prefixes import host_bytes

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
Borrowed = dict[IPAddress, str]
SoleOwners = dict[int, list[tuple[int, dict[int, int]]]]
"""By version, for each size of blocks in bits: the number of the node that owns a block, 0 where it
is not just one."""

_LARGEST_BLOCK = 12
"""The bits of an address in a block, at most (IPPool.blockSize). IPAM makes no larger one, and of
that nothing is borrowed."""


class ClaimedBlocks:
    """The blocks as seen from one node; `changed` hears of each whose facts differ.

    Until `start` no address is judged: endpoints may come before claims.
    """

    def __init__(
        self, node: str, places: EndpointPlaces, changed: Callable[[IPNetwork], object]
    ) -> None:
        self._node, self._places, self._changed = node, places, changed
        self.facts: dict[IPNetwork, BlockFacts] = {}
        self.left: set[IPNetwork] = set()
        """Blocks in use that have no claim any more."""
        self.started = False
        self._claims: dict[IPNetwork, dict[str, bool]] = {}
        self._by_size: dict[tuple[int, int], dict[int, IPNetwork]] = defaultdict(dict)
        self._users: dict[IPNetwork, Borrowed] = {}
        self._tunnels: dict[str, frozenset[str]] = {}
        self._ends: dict[str, set[str]] = defaultdict(set)
        self._news: set[IPNetwork] = set()

    # -- what is told --------------------------------------------------------------------------

    def claim(self, host: str, cidr: IPNetwork, value: BlockAffinity | None) -> bool:
        """An affinity of a node came, changed or (None) went; returns whether that is new."""
        claims = self._claims.get(cidr, {})
        owns = None if value is None else value.confirmed and not value.deleted
        if claims.get(host) == owns:
            return False
        if owns is None:
            del claims[host]
        else:
            claims[host] = owns
        if claims:
            self._claims[cidr] = claims
            self.left.discard(cidr)
            self._know(cidr)
        else:
            del self._claims[cidr]
            if self.started:
                self.left.add(cidr)
        self._judge_all(cidr)
        return True

    def tunnels(self, node: str, addresses: Iterable[IPAddress]) -> None:
        """The addresses of a node's tunnels are these now."""
        before, after = self._tunnels.get(node, frozenset()), frozenset(map(str, addresses))
        if before == after:
            return
        self._tunnels[node] = after
        if not after:
            del self._tunnels[node]
        for text in before - after:
            self._ends[text].discard(node)
            if not self._ends[text]:
                del self._ends[text]
        for text in after - before:
            self._ends[text].add(node)
        if self.started:
            self._judge(before ^ after)

    def survey(self) -> list[str]:
        """The used addresses that lie in no block that their user alone owns."""
        if not self._by_size:
            return list(self._used())
        owners, number_of = self._sole_owners(), self._places.number
        found: list[str] = []
        me, population = number_of(self._node), self._places.population
        # Nearly all are in blocks of the one size that pools have by default.
        size, usual = max(owners[4], key=lambda one: len(one[1]), default=(0, {}))
        owner, number = usual.get, int.from_bytes
        for node, members in zip(population.nodes, population.members_of, strict=True):
            if not node:
                continue
            if type(members) is str and ":" not in members and node != me:
                if owner(number(host_bytes(members)) >> size) != node and not _owns(
                    owners, node, members
                ):
                    found.append(members)
                continue
            found += [t for t in texts(members) if node == me or not _owns(owners, node, t)]
        for name, ends in self._tunnels.items():
            node = number_of(name)
            found += [t for t in ends if node == me or not _owns(owners, node, t)]
        return found

    def homeless(self, addresses: Iterable[str]) -> bool:
        """Whether any of these lies in no block that is known."""
        return any(not self._around(text) for text in addresses)

    def start(self, left: Iterable[IPNetwork] = (), addresses: Iterable[str] | None = None) -> None:
        """All has been read: judge the addresses from now on.

        `left`: the blocks that have no owner; `addresses`: what `survey` returned.
        """
        if self.started:
            return
        self.started = True
        for cidr in left:
            if cidr not in self._claims:
                self.left.add(cidr)
                self._know(cidr)
        self._places.moved = self._judge
        self._judge(self.survey() if addresses is None else addresses)
        for cidr in list(self.left):
            self._publish(cidr)

    # -- what follows --------------------------------------------------------------------------

    @property
    def borrowed(self) -> dict[IPNetwork, Borrowed]:
        """The borrowed addresses with their nodes, by block."""
        return self._users

    def take_news(self) -> set[IPNetwork]:
        """The blocks whose borrowed addresses differ since this was asked last."""
        news, self._news = self._news, set()
        return news

    def _sole_owners(self) -> SoleOwners:
        owners: SoleOwners = {4: [], 6: []}
        for (version, size), known in self._by_size.items():
            table = {}
            for number, cidr in known.items():
                hosts = [host for host, owns in self._claims.get(cidr, {}).items() if owns]
                table[number] = self._places.number(hosts[0]) if len(hosts) == 1 else 0
            owners[version].append((size, table))
        return owners

    def _judge_all(self, cidr: IPNetwork) -> None:
        """Judge every address of a block again."""
        if self.started:
            self._judge(self._used_in(cidr))
        self._publish(cidr)

    def _used_in(self, cidr: IPNetwork) -> Iterator[str]:
        population = self._places.population
        if cidr.max_prefixlen - cidr.prefixlen <= _LARGEST_BLOCK:
            for address in cidr:
                text = str(address)
                if text in self._ends or population.holders(text):
                    yield text
            return
        yield from self._used()

    def _used(self) -> Iterator[str]:
        """The addresses of all endpoints, and of all tunnels."""
        population = self._places.population
        for node, members in zip(population.nodes, population.members_of, strict=True):
            if node:
                yield from texts(members)
        yield from self._ends

    def _judge(self, addresses: Iterable[str]) -> None:
        """The users of these addresses, or whose their blocks are, may be others now."""
        if not self._by_size:
            return  # no address lies in a block
        changed: set[IPNetwork] = set()
        for text in addresses:
            around = self._around(text)
            user = self._borrower(text, around)
            for cidr in around:
                users = self._users.setdefault(cidr, {})
                wanted, address = user if cidr is around[0] else "", ip_address(text)
                if users.get(address, "") != wanted:
                    changed.add(cidr)
                    if wanted:
                        users[address] = wanted
                    else:
                        del users[address]
                if not users:
                    del self._users[cidr]
        self._news |= changed
        for cidr in changed:
            self._publish(cidr)

    def _borrower(self, text: str, around: list[IPNetwork]) -> str:
        """The node that uses an address, if that is none which owns the block."""
        if not around or around[0].max_prefixlen - around[0].prefixlen > _LARGEST_BLOCK:
            return ""
        ends = self._ends.get(text, set())
        users = self._places.users(text) | ends
        owners = {
            host for cidr in around for host, owns in self._claims.get(cidr, {}).items() if owns
        }
        using = users & owners
        if using:
            # A block of one address is told by that address, if it is in use.
            single = around[0].prefixlen == around[0].max_prefixlen
            return self._node if single and using == {self._node} else ""
        if ends:
            return min(ends)
        return self._node if self._node in users else min(users, default="")

    def _around(self, text: str) -> list[IPNetwork]:
        """The known blocks that have an address, the smallest first."""
        version, value = _value(text)
        found = [
            cidr
            for (each, size), known in self._by_size.items()
            if each == version and (cidr := known.get(value >> size)) is not None
        ]
        return sorted(found, key=lambda cidr: -cidr.prefixlen)

    def _know(self, cidr: IPNetwork) -> None:
        size = cidr.max_prefixlen - cidr.prefixlen
        self._by_size[cidr.version, size][int(cidr.network_address) >> size] = cidr

    def _publish(self, cidr: IPNetwork) -> None:
        """Bring a block's facts up to date; forget it once nothing speaks of it."""
        claims, users = self._claims.get(cidr), self._users.get(cidr, {})
        if cidr in self.left and not users:
            self.left.discard(cidr)
        if claims is None and cidr not in self.left:
            size = cidr.max_prefixlen - cidr.prefixlen
            self._by_size[cidr.version, size].pop(int(cidr.network_address) >> size, None)
            if not self._by_size[cidr.version, size]:
                del self._by_size[cidr.version, size]
            if self.facts.pop(cidr, None) is not None:
                self._changed(cidr)
            return
        owner = min((host for host, owns in (claims or {}).items() if owns), default="")
        facts = BlockFacts(f"host:{owner}" if owner else "", frozenset(users.items()))
        if self.facts.get(cidr) != facts:
            self.facts[cidr] = facts
            self._changed(cidr)


def _owns(owners: SoleOwners, node: int, text: str) -> bool:
    version, value = _value(text)
    return any(table.get(value >> size) == node for size, table in owners[version])


def _value(text: str) -> tuple[int, int]:
    """The version of an address and its number."""
    packed = host_bytes(text)
    return 4 if len(packed) == 4 else 6, int.from_bytes(packed)
