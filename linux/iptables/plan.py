"""From desired and actual to the lines of one iptables-restore: a pure function.

Problem: rewriting a table costs time and counters, and a rule that names a chain must never be
there without it. The plan holds the changed chains only, in this order: declare (which creates,
or empties what is rewritten or removed), rules, edits of kernel chains, removals. One restore is
one transaction, so packets see either the old table or the new one.

IPT-2: the plan names no chain and no rule that is not ours.
IPT-3: a chain whose hashes are as desired does not appear in the plan.
IPT-4: after the plan, `inserts` stand first and `appends` last in their kernel chains.
IPT-8: a plan without sweep takes no rule away unless a wanted chain must be rewritten.
Tested in tests/linux/test_iptables_plan.py and, with the kernel, test_iptables.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from linux.iptables.detect import Backend
from linux.iptables.hashes import APPENDS, HashScheme
from linux.iptables.save import FOREIGN, Actual, KernelRule

_CHAIN_NAME = re.compile(r"[^\s\"'!-][^\s\"']{0,27}")
_JUMP = re.compile(r"(?:-j|--jump|-g|--goto) (\S+)")
_COMMENTS = re.compile(r'(?:-m comment --comment "[^"]*" ?)*')
_ACTION = re.compile(r"(?:^| )(?:-j|--jump|-g|--goto) ")


@dataclass(frozen=True)
class Desired:
    """All that we want in one table.

    A rule is its text without "-A CHAIN": matches, comments and action in iptables' syntax,
    e.g. `-m comment --comment "Unknown interface" --jump DROP`. We add the hash comment.
    `chains`: our own chains, whole. `inserts`: rules that stand first in kernel chains;
    `appends`: rules that stand last in kernel chains. `unordered` names the chains whose rules
    exclude each other, so that new ones may stand at the end; of those in `closed` the last rule
    takes what the others leave, so new ones stand first.
    """

    chains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inserts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    appends: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unordered: Collection[str] = ()
    closed: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Addition:
    """The line of a restore that adds a rule; as text only where text is asked for.

    `rule` is as it was wanted, `comment` makes the match that carries its hash; `first`: at the
    chain's begin, not at its end.
    """

    chain: str
    rule: str
    hash: str
    comment: Callable[[str], str]
    first: bool = False

    def __str__(self) -> str:
        where = f"-I {self.chain} 1" if self.first else f"-A {self.chain}"
        return f"{where} {_behind(self.rule, self.comment(self.hash))}"


@dataclass(frozen=True, slots=True)
class RenderedChain:
    """A chain's rules with their hashes. `wanted`: the rules without the comment that says it."""

    hashes: tuple[str, ...]
    wanted: tuple[str, ...]
    unordered: bool = False
    closed: bool = False
    comment: Callable[[str], str] = str

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules with their hashes in a comment."""
        both = zip(self.hashes, self.wanted, strict=True)
        return tuple(_behind(rule, self.comment(each)) for each, rule in both)

    def additions(self, chain: str, start: int = 0) -> list[Addition]:
        """The rules from this one on, at the chain's end."""
        both = zip(self.hashes[start:], self.wanted[start:], strict=True)
        comment = self.comment
        return [Addition(chain, rule, each, comment) for each, rule in both]

    def editable(self, have: tuple[str, ...] | None) -> bool:
        """Whether rules can come and go one by one: these are ours and the last one stands."""
        if not self.unordered or have is None or "" in have:
            return False
        return not self.closed or have[-1:] == self.hashes[-1:]


@dataclass(frozen=True, slots=True)
class Filling:
    """The lines of a restore that fill an empty chain: as one, since chains of pods of one kind
    differ by their name and their hashes alone.
    """

    chain: str
    content: RenderedChain

    @property
    def additions(self) -> list[Addition]:
        """The same, line by line."""
        return self.content.additions(self.chain)


@dataclass(frozen=True, slots=True)
class Removal:
    """The line of a restore that takes a rule away: the chain's `number`th, counted from 1, whose
    hash this is."""

    chain: str
    number: int
    hash: str

    def __str__(self) -> str:
        return f"-D {self.chain} {self.number}"


Step = str | Addition | Filling | Removal
"""A line of a restore, or those that fill a chain."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """`Desired` with hashes; kernel chains as (first, last) pairs."""

    chains: dict[str, RenderedChain]
    kernel: dict[str, tuple[RenderedChain, RenderedChain]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one restore does: its steps, and what they leave.

    `chains` and `kernel` hold what differs afterwards (None: the chain is gone); `garbage` names
    chains that hold, or are, what nobody wants; `frees` says that rules are taken away.
    """

    steps: tuple[Step, ...]
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    edited: tuple[str, ...]
    chains: dict[str, tuple[str, ...] | None]
    kernel: dict[str, tuple[KernelRule, ...]]
    garbage: frozenset[str]
    frees: bool
    before: Actual

    @property
    def lines(self) -> tuple[str, ...]:
        """The steps as text."""
        found: list[str] = []
        for step in self.steps:
            found += map(str, step.additions) if isinstance(step, Filling) else (str(step),)
        return tuple(found)

    @property
    def size(self) -> int:
        """How many lines these are."""
        fillings = (step for step in self.steps if isinstance(step, Filling))
        return len(self.steps) + sum(len(each.content.hashes) - 1 for each in fillings)

    @property
    def adds(self) -> bool:
        """Whether it adds rules."""
        return any(isinstance(step, Addition | Filling) for step in self.steps)

    @property
    def removes(self) -> bool:
        """Whether it takes single rules away."""
        return any(isinstance(step, Removal) for step in self.steps)

    @property
    def after(self) -> Actual:
        """The whole actual state once the restore succeeded."""
        chains = {**self.before.chains, **self.chains}
        return Actual(
            {name: hashes for name, hashes in chains.items() if hashes is not None},
            {**self.before.kernel, **self.kernel},
        )


_EMPTY = RenderedChain((), ())


class Renderer:
    """Adds hashes; a chain that did not change since the last time costs one comparison."""

    def __init__(self, scheme: HashScheme) -> None:
        self._scheme = scheme
        self._known: dict[str, tuple[Sequence[str], RenderedChain]] = {}

    def render(self, desired: Desired) -> Rendered:
        """Raises `ValueError` for a chain or rule that iptables-restore could misread."""
        chains = {
            name: self.chain(
                name, rules, unordered=name in desired.unordered, closed=name in desired.closed
            )
            for name, rules in desired.chains.items()
        }
        return Rendered(chains, self.kernel(desired.inserts, desired.appends))

    def chain(
        self, name: str, rules: Sequence[str], *, unordered: bool = False, closed: bool = False
    ) -> RenderedChain:
        """One of our own chains. Raises as `render` does."""
        if not self._scheme.owns(name):
            raise ValueError(f"chain {name}: not ours by its name ({self._scheme.chain_prefixes})")
        return self._chain(name, name, rules, unordered, closed)

    def kernel(
        self, inserts: Mapping[str, Sequence[str]], appends: Mapping[str, Sequence[str]]
    ) -> dict[str, tuple[RenderedChain, RenderedChain]]:
        """Our rules in the kernel's chains. Raises as `render` does."""
        return {
            name: (
                self._chain(name, name, inserts.get(name, ())),
                self._chain(name, name + APPENDS, appends.get(name, ())),
            )
            for name in [*inserts, *(n for n in appends if n not in inserts)]
        }

    def forget(self, name: str) -> None:
        """A chain is not wanted any more."""
        self._known.pop(name, None)

    def _chain(
        self,
        chain: str,
        salt: str,
        rules: Sequence[str],
        unordered: bool = False,
        closed: bool = False,
    ) -> RenderedChain:
        before = self._known.get(salt)
        if (
            before is None
            or (before[1].unordered, before[1].closed) != (unordered, closed)
            or (before[0] is not rules and tuple(before[0]) != tuple(rules))
        ):
            former = before[1] if before is not None and before[1].unordered else None
            rendered = self._hashed(chain, salt, rules, unordered, closed, former)
            before = self._known[salt] = (rendered.wanted, rendered)
        return before[1]

    def _hashed(
        self,
        chain: str,
        salt: str,
        rules: Sequence[str],
        unordered: bool,
        closed: bool,
        former: RenderedChain | None,
    ) -> RenderedChain:
        """`former`: the chain as it was, where a rule's hash does not depend on the others."""
        known: dict[str, str] = {}
        if former is None or not unordered:
            if not _CHAIN_NAME.fullmatch(chain):
                want = "want 1 to 28 characters, no blanks or quotes"
                raise ValueError(f"chain name {chain!r}: {want}")
            fresh = rules
        else:
            known = dict(zip(former.wanted, former.hashes, strict=True))
            fresh = [rule for rule in rules if rule not in known]
        for rule in fresh:
            if "\n" in rule or "\0" in rule:
                raise ValueError(f"chain {chain}: a rule holds a line break: {rule!r}")
        hashes = (self._scheme.unordered if unordered else self._scheme.hashes)(salt, fresh)
        if known:
            known.update(zip(fresh, hashes, strict=True))
            hashes = tuple([known[rule] for rule in rules])
        return RenderedChain(hashes, tuple(rules), unordered, closed, self._scheme.comment)


def _behind(rule: str, comment: str) -> str:
    """The rule with this comment and its own behind the matches.

    The kernel takes a comment for a match that always holds and asks in the order written: so only
    packets that the rule is for pay for them.
    """
    before, behind = _around(rule)
    return f"{before}{comment}{behind}"


@lru_cache(maxsize=4096)
def _around(rule: str) -> tuple[str, str]:
    """What of a rule stands before and behind our comment."""
    found = _COMMENTS.match(rule)
    said = found.group() if found is not None else ""
    rest = rule[len(said) :]
    action = _ACTION.search(rest)
    end = len(rest) if action is None else action.start()
    before, behind = rest[:end].strip(), (said.strip(), rest[end:].strip())
    return before and f"{before} ", "".join(f" {part}" for part in behind if part)


def make_plan(
    actual: Actual,
    wanted: Rendered,
    backend: Backend,
    keep: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    sweep: bool = True,
) -> Plan:
    """The lines that turn `actual` into `wanted` (IPT-2, IPT-3, IPT-4).

    Chains of `keep` are emptied but not removed: somebody else's rule still names them. `only`:
    look at these chains alone, the others are known to be right. Without `sweep` what nobody
    wants stays where it harms nobody: chains, and rules of unordered chains (IPT-8).
    """
    declared: list[Step] = []
    rules: list[Step] = []
    written: list[str] = []
    changed: dict[str, tuple[str, ...] | None] = {}
    garbage: set[str] = set()
    frees = False
    for name in wanted.chains if only is None else (n for n in only if n in wanted.chains):
        chain, have = wanted.chains[name], actual.chains.get(name)
        if have == chain.hashes:
            continue
        if have is not None and chain.editable(have):
            lines, left, surplus = _edit_unordered(name, have, chain, sweep)
            frees = frees or (surplus and sweep)
            if surplus and not sweep:
                garbage.add(name)
            if lines:
                written.append(name)
                changed[name] = left
                rules += lines
            continue
        written.append(name)
        changed[name] = chain.hashes
        if have is not None and have == chain.hashes[: len(have)]:
            # Only longer: nothing is deleted, so nft need not wait for readers of the old rules.
            rules += chain.additions(name, len(have))
        elif have is None or backend == "nft":
            frees = frees or bool(have)
            declared.append(f":{name} - [0:0]")
            rules.append(Filling(name, chain))
        else:
            frees = True
            rules += _edit_in_place(name, have, chain)
    candidates = actual.chains if only is None else (n for n in only if n in actual.chains)
    unwanted = [name for name in candidates if name not in wanted.chains]
    deleted: list[str] = []
    if sweep:
        deleted = [name for name in unwanted if name not in keep]
        kept = [name for name in unwanted if name in keep and actual.chains[name]]
        declared += [f":{name} - [0:0]" for name in (*deleted, *kept)]
        changed.update(dict.fromkeys(deleted, None))
        changed.update(dict.fromkeys(kept, ()))
        frees = frees or bool(unwanted)
    else:
        garbage.update(unwanted)
    edits: list[Step] = []
    kernel: dict[str, tuple[KernelRule, ...]] = {}
    if only is None or not (wanted.kernel.keys() | actual.kernel.keys()).isdisjoint(only):
        for name in [*wanted.kernel, *(n for n in actual.kernel if n not in wanted.kernel)]:
            edit, after = _edit_kernel_chain(
                name, actual.kernel.get(name, ()), *wanted.kernel.get(name, (_EMPTY, _EMPTY))
            )
            if edit:
                edits += edit
                kernel[name] = after
    steps = [*declared, *rules, *edits, *(f"-X {name}" for name in deleted)]
    return Plan(
        tuple(steps),
        tuple(written),
        tuple(deleted),
        tuple(kernel),
        changed,
        kernel,
        frozenset(garbage),
        frees or bool(edits),
        actual,
    )


def _edit_unordered(
    name: str, have: tuple[str, ...], chain: RenderedChain, sweep: bool
) -> tuple[list[Step], tuple[str, ...], bool]:
    """Steps, the hashes they leave, and whether there are rules that nobody wants."""
    missing = dict(zip(chain.hashes, chain.wanted, strict=True))
    surplus: list[Removal] = []
    stay: list[str] = []
    for number, each in enumerate(have, 1):
        if missing.pop(each, None) is None:
            surplus.append(Removal(name, number, each))
            if sweep:
                continue
        stay.append(each)
    # From the end, so that numbers keep their meaning.
    steps: list[Step] = []
    if sweep:
        steps += reversed(surplus)
    # The new ones come first; the last one, which takes what the others leave, stays last.
    first, comment = chain.closed, chain.comment
    steps += [Addition(name, rule, each, comment, first) for each, rule in missing.items()]
    there = (*reversed(missing), *stay) if first else (*stay, *missing)
    return steps, there, bool(surplus)


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
