"""Nodes as they are used: as they are stored, and for a moment as they were stored before.

A Node loses an address for a moment when an old version of it is applied, or when its node starts
with an interface that is still down. Everything hangs on that address: routes, ends of tunnels, who
may send into them. So what vanished from a Node stays in use for `HOLD` seconds, unless it comes
back, another one takes its place, or another Node has it now. A Node that is deleted is gone at
once, and nothing of this node's own is held.

Pure: `expire` is told the time. Invariants:
  ABS-1  Once `expire` was told a time later than HOLD after the last change, what is used is what
         is stored.
  ABS-2  What another Node names is never held.
Tested in tests/felix/calc/test_node_grace.py.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from felix.calc.nodes import NodeFacts

IPAddress = IPv4Address | IPv6Address
HOLD = 5.0
"""How long what vanished stays in use, in seconds."""


class NodeTable:
    """The nodes by name, `used` as everybody sees them. `own` is this node's name."""

    def __init__(self, own: str) -> None:
        self.used: dict[str, NodeFacts] = {}
        self._own = own
        self._held: dict[str, NodeFacts] = {}
        """What is stored of the nodes of which something is held."""
        self._until: dict[str, float] = {}

    def store(self, name: str, facts: NodeFacts | None) -> set[str]:
        """A Node came, changed or (None) went; returns the names whose use differs now."""
        changed = set()
        if facts is not None:
            for other in [each for each in self._held if each != name]:
                later = self._held[other]
                if named(facts) & (named(self.used[other]) - named(later)):
                    changed |= self._release(other)
        before = self.used.get(name)
        self._held.pop(name, None)
        if facts is None:
            self._until.pop(name, None)
            self.used.pop(name, None)
        else:
            kept = self._kept(name, before, facts)
            if kept != facts:
                self._held[name] = facts
            else:
                self._until.pop(name, None)
            self.used[name] = kept
        return changed | ({name} if self.used.get(name) != before else set())

    def _kept(self, name: str, before: NodeFacts | None, facts: NodeFacts) -> NodeFacts:
        if before is None or name == self._own:
            return facts
        kept = joined(before, facts)
        vanished = named(kept) - named(facts)
        taken = (named(each) for other, each in self.used.items() if other != name)
        # Seldom asked: something did vanish.
        return facts if vanished and any(vanished & each for each in taken) else kept

    def _release(self, name: str) -> set[str]:
        self.used[name] = self._held.pop(name)
        self._until.pop(name, None)
        return {name}

    def expire(self, now: float) -> tuple[set[str], float | None]:
        """It is `now`, in seconds: returns the names whose use differs, and after how many seconds
        to ask again (None: nothing is held).
        """
        for name in self._held:
            self._until.setdefault(name, now + HOLD)
        over = {name for name in self._held if self._until[name] <= now}
        for name in over:
            self._release(name)
        return over, min((self._until[name] - now for name in self._held), default=None)


def named(facts: NodeFacts) -> set[IPAddress]:
    """The node's addresses and those of its tunnels."""
    result: set[IPAddress] = {*facts.addresses, *(end.address for end in facts.vteps)}
    return result | {facts.ipip} if facts.ipip is not None else result


def joined(before: NodeFacts, after: NodeFacts) -> NodeFacts:
    """A node as it is now, with what it only had before."""
    addresses, networks, vteps = set(after.addresses), list(after.networks), list(after.vteps)
    for version in (4, 6):
        was, now = before.address(version), after.address(version)
        if was is not None and now is None:
            addresses.add(was)
            networks += [each for each in before.networks if each.version == version]
        end = before.vtep(version)
        if end is not None and after.vtep(version) is None and end.node == (now or was):
            vteps.append(end)
    same = after.address(4) in (None, before.address(4))
    ipip = after.ipip or (before.ipip if same else None)
    return NodeFacts(
        frozenset(addresses),
        tuple(sorted(networks, key=lambda network: network.version)),
        ipip,
        tuple(sorted(vteps, key=lambda end: end.node.version)),
        after.macs,
    )
