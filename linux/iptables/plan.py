"""From desired and actual to the lines of one iptables-restore: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


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


def referenced(chains: Mapping[str, Sequence[str]], roots: Iterable[str]) -> set[str]:
    """The chains that `roots` reach by jump or goto, roots included (those that exist)."""
    raise NotImplementedError
