"""From an interface to its endpoint's chain, in few steps (dataplane reference 2.7).

A flat list of one rule per interface costs every packet the whole list. Instead the names
are binned by the character after their common prefix: a bin of one gets a direct rule, a
bin of several a child chain. Because the way down is a goto, every chain of the tree ends
by itself in the drop for an unknown interface.

Invariant:
  DSP-1  A packet of an interface with our prefix but without an endpoint is dropped, in both
         directions, whichever names exist.
Tested in tests/felix/test_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from felix.rules import names
from felix.rules.model import (
    Action,
    Chain,
    Goto,
    InInterface,
    OutInterface,
    Rule,
)


def workload_dispatch(interfaces: Iterable[str], deny: Action) -> list[Chain]:
    """The chains `cali-from-wl-dispatch` and `cali-to-wl-dispatch` with their children."""
    ordered = sorted(set(interfaces))
    return [
        *_tree(ordered, names.FROM_WORKLOAD_DISPATCH, names.FROM_WORKLOAD, InInterface, deny),
        *_tree(ordered, names.TO_WORKLOAD_DISPATCH, names.TO_WORKLOAD, OutInterface, deny),
    ]


def _tree(
    interfaces: list[str],
    root: str,
    prefix: str,
    matching: Callable[[str], InInterface | OutInterface],
    deny: Action,
) -> list[Chain]:
    unknown = Rule(deny, comments=("Unknown interface",))

    def to_endpoint(name: str) -> Rule:
        return Rule(Goto(names.endpoint_chain(prefix, name)), (matching(name),))

    common = _common_prefix(interfaces)
    bins: dict[str, list[str]] = {}
    for name in interfaces:
        bins.setdefault(name[len(common) : len(common) + 1], []).append(name)
    rules: list[Rule] = []
    children: list[Chain] = []
    for character, members in sorted(bins.items()):
        if len(members) == 1:
            rules.append(to_endpoint(members[0]))
            continue
        child = f"{root}-{character}"
        rules.append(Rule(Goto(child), (matching(f"{common}{character}+"),)))
        children.append(Chain(child, (*map(to_endpoint, members), unknown)))
    return [*children, Chain(root, (*rules, unknown))]


def _common_prefix(ordered: list[str]) -> str:
    """What all names of a sorted list of several begin with; empty for fewer."""
    if len(ordered) < 2:
        return ""
    first, last = ordered[0], ordered[-1]
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]
