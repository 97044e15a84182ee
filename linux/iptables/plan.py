"""From desired and actual to the lines of one iptables-restore: a pure function.

Problem: rewriting a table costs time and counters, and a rule that names a chain must never be
there without it. The plan holds the changed chains only, in this order: declare (which creates,
or empties what is rewritten or removed), rules, edits of kernel chains, removals. One restore is
one transaction, so packets see either the old table or the new one.

IPT-2: the plan names no chain and no rule that is not ours.
IPT-3: a chain whose hashes are as desired does not appear in the plan.
IPT-4: after the plan, `inserts` stand first and `appends` last in their kernel chains.
Tested in tests/linux/test_iptables_plan.py and, with the kernel, test_iptables.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from linux.iptables.detect import Backend
from linux.iptables.hashes import APPENDS, HashScheme
from linux.iptables.save import FOREIGN, Actual, KernelRule

_CHAIN_NAME = re.compile(r"[^\s\"'!-][^\s\"']{0,27}")
_JUMP = re.compile(r"(?:-j|--jump|-g|--goto) (\S+)")


@dataclass(frozen=True)
class Desired:
    """All that we want in one table.

    A rule is its text without "-A CHAIN": matches, comments and action in iptables' syntax,
    e.g. `-m comment --comment "Unknown interface" --jump DROP`. We add the hash comment.
    `chains`: our own chains, whole. `inserts`: rules that stand first in kernel chains;
    `appends`: rules that stand last in kernel chains.
    """

    chains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inserts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    appends: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RenderedChain:
    """A chain's rules with their hashes."""

    hashes: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """`Desired` with hashes; kernel chains as (first, last) pairs."""

    chains: dict[str, RenderedChain]
    kernel: dict[str, tuple[RenderedChain, RenderedChain]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one restore does. `after` is the actual state once it succeeded."""

    lines: tuple[str, ...]
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    edited: tuple[str, ...]
    after: Actual


_EMPTY = RenderedChain((), ())


class Renderer:
    """Adds hashes; a chain that did not change since the last time costs one comparison."""

    def __init__(self, scheme: HashScheme) -> None:
        self._scheme = scheme
        self._known: dict[str, tuple[Sequence[str], RenderedChain]] = {}

    def render(self, desired: Desired) -> Rendered:
        """Raises `ValueError` for a chain or rule that iptables-restore could misread."""
        known: dict[str, tuple[Sequence[str], RenderedChain]] = {}
        chains: dict[str, RenderedChain] = {}
        for name, rules in desired.chains.items():
            if not self._scheme.owns(name):
                raise ValueError(
                    f"chain {name}: not ours by its name ({self._scheme.chain_prefixes})"
                )
            chains[name] = self._chain(name, name, rules, known)
        kernel = {
            name: (
                self._chain(name, name, desired.inserts.get(name, ()), known),
                self._chain(name, name + APPENDS, desired.appends.get(name, ()), known),
            )
            for name in [
                *desired.inserts,
                *(n for n in desired.appends if n not in desired.inserts),
            ]
        }
        self._known = known
        return Rendered(chains, kernel)

    def _chain(
        self,
        chain: str,
        salt: str,
        rules: Sequence[str],
        known: dict[str, tuple[Sequence[str], RenderedChain]],
    ) -> RenderedChain:
        before = self._known.get(salt)
        if before is None or (before[0] is not rules and tuple(before[0]) != tuple(rules)):
            before = (tuple(rules), self._hashed(chain, salt, rules))
        known[salt] = before
        return before[1]

    def _hashed(self, chain: str, salt: str, rules: Sequence[str]) -> RenderedChain:
        if not _CHAIN_NAME.fullmatch(chain):
            raise ValueError(f"chain name {chain!r}: want 1 to 28 characters, no blanks or quotes")
        for rule in rules:
            if "\n" in rule or "\0" in rule:
                raise ValueError(f"chain {chain}: a rule holds a line break: {rule!r}")
        hashes = self._scheme.hashes(salt, rules)
        text = tuple(
            f"{self._scheme.comment(each)} {rule}" for each, rule in zip(hashes, rules, strict=True)
        )
        return RenderedChain(hashes, text)


def make_plan(
    actual: Actual, wanted: Rendered, backend: Backend, keep: Collection[str] = ()
) -> Plan:
    """The lines that turn `actual` into `wanted` (IPT-2, IPT-3, IPT-4).

    Chains of `keep` are emptied but not removed: somebody else's rule still names them.
    """
    declared: list[str] = []
    rules: list[str] = []
    written: list[str] = []
    for name, chain in wanted.chains.items():
        have = actual.chains.get(name)
        if have == chain.hashes:
            continue
        written.append(name)
        if have and have == chain.hashes[: len(have)]:
            # Only longer: nothing is deleted, so nft need not wait for readers of the old rules.
            rules += [f"-A {name} {rule}" for rule in chain.rules[len(have) :]]
        elif have is None or backend == "nft":
            declared.append(f":{name} - [0:0]")
            rules += [f"-A {name} {rule}" for rule in chain.rules]
        else:
            rules += _edit_in_place(name, have, chain)
    unwanted = [name for name in actual.chains if name not in wanted.chains]
    deleted = [name for name in unwanted if name not in keep]
    kept: dict[str, tuple[str, ...]] = {name: () for name in unwanted if name in keep}
    emptied = [*deleted, *(name for name in kept if actual.chains[name])]
    declared += [f":{name} - [0:0]" for name in emptied]
    edits: list[str] = []
    kernel = dict(actual.kernel)
    edited: list[str] = []
    for name in [*wanted.kernel, *(n for n in actual.kernel if n not in wanted.kernel)]:
        lines, after = _edit_kernel_chain(
            name, actual.kernel.get(name, ()), *wanted.kernel.get(name, (_EMPTY, _EMPTY))
        )
        if lines:
            edited.append(name)
            edits += lines
            kernel[name] = after
    lines = [*declared, *rules, *edits, *(f"-X {name}" for name in deleted)]
    return Plan(
        tuple(lines),
        tuple(written),
        tuple(deleted),
        tuple(edited),
        Actual(kept | {name: chain.hashes for name, chain in wanted.chains.items()}, kernel),
    )


def _edit_in_place(name: str, have: tuple[str, ...], chain: RenderedChain) -> list[str]:
    # Legacy tables keep the counters of rules that are not named, so only the tail is touched.
    lines = []
    for number, (each, rule) in enumerate(zip(chain.hashes, chain.rules, strict=True), 1):
        if number > len(have):
            lines.append(f"-A {name} {rule}")
        elif have[number - 1] != each:
            lines.append(f"-R {name} {number} {rule}")
    surplus = range(len(have), len(chain.hashes), -1)
    return lines + [f"-D {name} {number}" for number in surplus]


def _edit_kernel_chain(
    name: str, have: tuple[KernelRule, ...], first: RenderedChain, last: RenderedChain
) -> tuple[list[str], tuple[KernelRule, ...]]:
    foreign = tuple(FOREIGN for rule in have if not rule.ours)
    expected = (*first.hashes, *("" for _ in foreign), *last.hashes)
    if tuple(rule.hash for rule in have) == expected:
        return [], have
    lines = [f"-D {name} {rule.text}" for rule in have if rule.ours]
    lines += [f"-I {name} 1 {rule}" for rule in reversed(first.rules)]
    lines += [f"-A {name} {rule}" for rule in last.rules]
    after = (
        *map(KernelRule, first.hashes, first.rules),
        *foreign,
        *map(KernelRule, last.hashes, last.rules),
    )
    return lines, after


def referenced(chains: Mapping[str, Sequence[str]], roots: Iterable[str]) -> set[str]:
    """The chains that `roots` reach by jump or goto, roots included (those that exist)."""
    found: set[str] = set()
    waiting = [name for name in roots if name in chains]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for rule in chains[name]:
            waiting += [target for target in _JUMP.findall(rule) if target in chains]
    return found
