"""Reading what iptables-save prints: our chains as lists of hashes, the rest as "not ours".

Tested in tests/linux/test_iptables_plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from linux.iptables.hashes import HashScheme


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A rule in a chain that is not ours. `text` (without "-A CHAIN") only where it is our rule."""

    hash: str
    text: str

    @property
    def ours(self) -> bool:
        """Whether we (or an earlier version of us) wrote it."""
        return bool(self.text)


FOREIGN = KernelRule("", "")


@dataclass(frozen=True, slots=True)
class Actual:
    """A table as the kernel has it.

    `chains`: hash list of each of our chains, "" for a rule without hash. `kernel`: rules of the
    other chains in which one of ours stands, or which are built in.
    """

    chains: dict[str, tuple[str, ...]]
    kernel: dict[str, tuple[KernelRule, ...]]

    def apply(
        self,
        chains: Mapping[str, tuple[str, ...] | None],
        kernel: Mapping[str, tuple[KernelRule, ...]],
    ) -> None:
        """Take note of what was written; None: the chain is gone."""
        for name, hashes in chains.items():
            if hashes is None:
                self.chains.pop(name, None)
            else:
                self.chains[name] = hashes
        self.kernel.update(kernel)


def parse_save(output: str, table: str, scheme: HashScheme) -> Actual:
    """The state of one table in the output of iptables-save."""
    chains: dict[str, list[str]] = {}
    kernel: dict[str, list[KernelRule]] = {}
    builtin: set[str] = set()
    inside = False
    for line in output.splitlines():
        if line.startswith("*"):
            inside = line[1:].strip() == table
        elif not inside:
            continue
        elif line.startswith(":"):
            name, policy = line[1:].split(" ", 2)[:2]
            if scheme.owns(name):
                chains[name] = []
            else:
                kernel[name] = []
                if policy != "-":
                    builtin.add(name)
        elif line.startswith("-A "):
            _, name, text = line.split(" ", 2) if line.count(" ") > 1 else (*line.split(" "), "")
            if name in chains:
                chains[name].append(scheme.hash_in(text))
            elif name in kernel:
                kernel[name].append(_kernel_rule(text, name in builtin, scheme))
    return Actual(
        {name: tuple(hashes) for name, hashes in chains.items()},
        {
            name: tuple(rules)
            for name, rules in kernel.items()
            if name in builtin or any(rule.ours for rule in rules)
        },
    )


def parse_counters(output: str, table: str) -> dict[str, list[tuple[int, int, str]]]:
    """Packets, bytes and text of each rule, by chain, in the output of iptables-save -c."""
    counters: dict[str, list[tuple[int, int, str]]] = {}
    inside = False
    for line in output.splitlines():
        if line.startswith("*"):
            inside = line[1:].strip() == table
        elif inside and line.startswith(":"):
            counters[line[1:].partition(" ")[0]] = []
        elif inside and line.startswith("["):
            counted, _, rule = line.partition(" -A ")
            packets, _, octets = counted[1:].partition(":")
            chain, _, text = rule.partition(" ")
            counters.setdefault(chain, []).append((int(packets), int(octets.rstrip("]")), text))
    return counters


def _kernel_rule(text: str, builtin: bool, scheme: HashScheme) -> KernelRule:
    rule_hash = scheme.hash_in(text)
    # A jump of ours may lack its hash (an older version, an operator's repair); in a foreign
    # user chain another program or an operator put it there, and it stays.
    if rule_hash or (builtin and scheme.jumps_to_ours(text)):
        return KernelRule(rule_hash, text)
    return FOREIGN
