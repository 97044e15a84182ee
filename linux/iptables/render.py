"""The desired rules of a table with their hashes, and the lines of a restore: pure.

A rule carries its hash in a comment, so that a dump tells what it is without its text. A chain
that did not change since the last time is not rendered again.

Tested in tests/linux/test_iptables_plan.py and test_iptables_growth.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from linux.iptables.hashes import APPENDS, JUMP, HashScheme

_CHAIN_NAME = re.compile(r"[^\s\"'!-][^\s\"']{0,27}")
_COMMENTS = re.compile(r'(?:-m comment --comment "[^"]*" ?)*')
_ACTION = re.compile(rf"(?:^| ){JUMP}")


@dataclass(frozen=True)
class Desired:
    """All that is desired in one table.

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

    `rule` is the plain rule, `comment` makes the match that carries its hash; `first`: at the
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
    """A chain's rules with their hashes; `plain_rules` lack the comment that carries the hash."""

    hashes: tuple[str, ...]
    plain_rules: tuple[str, ...]
    unordered: bool = False
    closed: bool = False
    comment: Callable[[str], str] = str

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules with their hashes in a comment."""
        both = zip(self.hashes, self.plain_rules, strict=True)
        return tuple(_behind(rule, self.comment(each)) for each, rule in both)

    def additions(self, chain: str, start: int = 0) -> list[Addition]:
        """The rules from this one on, at the chain's end."""
        both = zip(self.hashes[start:], self.plain_rules[start:], strict=True)
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
        """A chain is not desired any more."""
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
            before = self._known[salt] = (rendered.plain_rules, rendered)
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
            known = dict(zip(former.plain_rules, former.hashes, strict=True))
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
    """The rule with this comment, and its own comments, behind the matches.

    The kernel takes a comment for a match that always holds and asks in the order written: so only
    packets that the rule is for pay for them.
    """
    before, behind = _around(rule)
    return f"{before}{comment}{behind}"


@lru_cache(maxsize=4096)
def _around(rule: str) -> tuple[str, str]:
    """The parts of a rule before and behind our comment."""
    comments = _COMMENTS.match(rule)
    said = comments.group() if comments is not None else ""
    rest = rule[len(said) :]
    action = _ACTION.search(rest)
    end = len(rest) if action is None else action.start()
    before, behind = rest[:end].strip(), (said.strip(), rest[end:].strip())
    return before and f"{before} ", "".join(f" {part}" for part in behind if part)
