"""The rules of the simulated kernel, as iptables-save prints and iptables-restore takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.kernel.sets import Sets

BUILT_IN = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
_JUMP = re.compile(r"(?:^| )(?:-j|--jump|-g|--goto) (\S+)")
_SET = re.compile(r"--match-set (\S+) ")
_TARGETS = frozenset(
    ("ACCEPT", "DROP", "RETURN", "MARK", "REJECT", "MASQUERADE", "SNAT", "DNAT", "NFLOG", "LOG",
     "CT", "NOTRACK", "CONNMARK", "TCPMSS", "CHECKSUM", "DSCP")
)  # fmt: skip
Table = dict[str, list[str]]


class Bad(Exception):
    """The program refuses its input: what it says."""


def _fresh() -> dict[str, Table]:
    return {name: {chain: [] for chain in chains} for name, chains in BUILT_IN.items()}


@dataclass
class Chains:
    """All tables of IPv4. `failing`: so many restores are refused from now on."""

    tables: dict[str, Table] = field(default_factory=_fresh)
    sets: Sets = field(default_factory=Sets)
    writes: int = 0
    failing: int = 0
    changed: Callable[[], None] = lambda: None

    def run(self, arguments: tuple[str, ...], data: bytes) -> tuple[int, bytes, bytes]:
        """What iptables-save or iptables-restore does: its status, output and complaint."""
        program = arguments[0].rsplit("/", 1)[-1]
        if program.endswith("-save"):
            names = [arguments[arguments.index("-t") + 1]] if "-t" in arguments else self.tables
            return 0, "".join(map(self._saved, names)).encode(), b""
        if not program.endswith("-restore"):
            return 127, b"", b"no such program"
        if self.failing:
            self.failing -= 1
            return 4, b"", b"iptables-restore: the kernel is out of memory"
        try:
            self._restore(data.decode())
        except Bad as bad:
            return 1, b"", f"iptables-restore: {bad}".encode()
        self.changed()
        return 0, b"", b""

    def _saved(self, name: str) -> str:
        table = self.tables[name]
        lines = [f"*{name}"]
        for chain in table:
            lines.append(f":{chain} {'ACCEPT' if chain in BUILT_IN[name] else '-'} [0:0]")
        lines += [f"-A {chain} {rule}" for chain, rules in table.items() for rule in rules]
        return "\n".join((*lines, "COMMIT", ""))

    def _restore(self, text: str) -> None:
        name, work = "", Table()
        for line in text.splitlines():
            if line.startswith("*"):
                name = line[1:]
                work = {chain: list(rules) for chain, rules in self.tables[name].items()}
            elif line == "COMMIT":
                self._check(work)
                if work != self.tables[name]:
                    self.writes += 1
                self.tables[name] = work
                self._count()
            elif line:
                _apply(work, name, line)

    def _check(self, table: Table) -> None:
        for chain, rules in table.items():
            for rule in rules:
                target = _JUMP.search(rule)
                goal = target.group(1) if target else "RETURN"
                if goal not in table and goal not in _TARGETS:
                    raise Bad(f"chain {chain}: no target {goal}")
                for named in _SET.findall(rule):
                    if named not in self.sets.found:
                        raise Bad(f"Set {named} doesn't exist.")

    def _count(self) -> None:
        used: dict[str, int] = {}
        for table in self.tables.values():
            for rules in table.values():
                for rule in rules:
                    for named in _SET.findall(rule):
                        used[named] = used.get(named, 0) + 1
        self.sets.used = used


def _apply(table: Table, name: str, line: str) -> None:
    if line.startswith(":"):
        table[line[1:].split(" ", 1)[0]] = []
        return
    verb, chain, *rest = line.split(" ", 2)
    text = rest[0] if rest else ""
    if chain not in table:
        raise Bad(f"no chain {chain}")
    match verb:
        case "-A":
            table[chain].append(text)
        case "-I":
            number, _, rule = text.partition(" ")
            place, rule = (int(number), rule) if number.isdigit() else (1, text)
            table[chain].insert(place - 1, rule)
        case "-D" if text.isdigit():
            if int(text) > len(table[chain]):
                raise Bad(f"Index of deletion too big in {chain}")
            del table[chain][int(text) - 1]
        case "-D":
            if text not in table[chain]:
                raise Bad(f"Bad rule in {chain}")
            table[chain].remove(text)
        case "-R":
            number, _, rule = text.partition(" ")
            table[chain][int(number) - 1] = rule
        case "-F":
            table[chain] = []
        case "-X":
            used = any(f" {chain}" in f" {rule} " for rules in table.values() for rule in rules
                       if (found := _JUMP.search(rule)) and found.group(1) == chain)  # fmt: skip
            if used or table[chain]:
                raise Bad(f"chain {chain} is not empty or in use")
            del table[chain]
        case _:
            raise Bad(f"line {line!r} of table {name}")
