"""What a back end wrote, as its own tools show it, and damage done to it by hand.

One face for both: `chain` and `members` give text that names what the tests look for, the rest
is what a careless operator would do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.netns import Namespace

NFTABLES = "nftables"
BACKENDS = ("nft", NFTABLES)
_DISPATCH = re.compile(r"(cali-(?:from|to)-wl-dispatch)-.")


def mode(backend: str) -> dict[str, str]:
    """The parameters of a back end: iptables as nft or legacy, or nftables."""
    if backend == NFTABLES:
        return {"FELIX_NFTABLESMODE": "Enabled", "FELIX_NFTABLESREFRESHINTERVAL": "2"}
    return {"FELIX_NFTABLESMODE": "Disabled", "FELIX_IPTABLESBACKEND": backend}


@dataclass(frozen=True)
class InKernel:
    """The rules and sets of a node's felix. `native`: they are in nftables."""

    node: Namespace
    native: bool
    legacy: bool = False

    def chain(self, name: str, table: str = "filter") -> str:
        """The rules of a chain, or of the map that stands for it; empty if there is none."""
        if self.native:
            dispatch = _DISPATCH.fullmatch(name)
            if dispatch:
                return self._nft("list", "map", "ip", "calico", dispatch.group(1))
            return self._nft("list", "chain", "ip", "calico", f"{table}-{name}")
        found = (
            self.node.run(f"iptables-{kind}", "-t", table, "-S", name, check=False)
            for kind in ("legacy", "nft")
        )
        return "".join(found)

    def counted(self, name: str, table: str = "filter") -> list[tuple[int, str]]:
        """(packets, text) of each rule of a chain."""
        if self.native:
            found = re.finditer(r"^.*counter packets (\d+) .*$", self.chain(name, table), re.M)
            return [(int(each.group(1)), each.group()) for each in found]
        saved = "".join(
            self.node.run(f"iptables-{kind}-save", "-c", "-t", table, check=False)
            for kind in ("nft", "legacy")
        )
        found = re.finditer(rf"^\[(\d+):\d+\] -A {re.escape(name)} .*$", saved, re.M)
        return [(int(each.group(1)), each.group()) for each in found]

    def flush(self, name: str) -> None:
        """Empty a chain of the filter table."""
        if self.native:
            self._nft("flush", "chain", "ip", "calico", f"filter-{name}", check=True)
        else:
            self.iptables("-F", name)

    def accept_all(self, name: str) -> None:
        """Put a rule that accepts everything in front of a chain."""
        if self.native:
            self._nft("insert", "rule", "ip", "calico", f"filter-{name}", "accept", check=True)
        else:
            self.iptables("-I", name, "-j", "ACCEPT")

    def iptables(self, *arguments: str) -> None:
        """Run iptables, as somebody else on this host would."""
        self.node.run(f"iptables-{'legacy' if self.legacy else 'nft'}", *arguments)

    def sets(self) -> list[str]:
        """The names of felix's sets, as ipset spells them."""
        if self.native:
            listed = self._nft("list", "sets", "ip")
            return [
                name.replace("-", ":", 1)
                for name in re.findall(r"^\tset (cali4\S+) \{", listed, re.M)
            ]
        return self.node.run("ipset", "list", "-n").split()

    def members(self, name: str) -> str:
        """What a set holds; empty if there is none."""
        if self.native:
            name = _native(name)
            family = "ip6" if name.startswith("cali6") else "ip"
            return self._nft("list", "set", family, "calico", name)
        return self.node.run("ipset", "list", name, check=False)

    def put(self, name: str, member: str) -> None:
        """Add a member to a set of IPv4."""
        self._change("add", name, member)

    def take(self, name: str, member: str) -> None:
        """Take a member out of a set of IPv4."""
        self._change("delete", name, member)

    def _change(self, verb: str, name: str, member: str) -> None:
        if self.native:
            element = f"{{ {member} }}"
            self._nft(verb, "element", "ip", "calico", _native(name), element, check=True)
        else:
            self.node.run("ipset", verb[:3], name, member)

    def _nft(self, *arguments: str, check: bool = False) -> str:
        return self.node.run("nft", *arguments, check=check)


def _native(name: str) -> str:
    return name.replace(":", "-")
