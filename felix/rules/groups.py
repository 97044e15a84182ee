"""Groups: policies of one selector that follow each other are one chain
(docs/reference/dataplane.md#endpoint-chains).

A hundred policies that select the same pods would be three hundred rules in the chains of each of
these pods, and a first packet would meet all of them. So they get a chain of their own, which is
the same for every pod; it is named for what it holds, so it never changes. In it a packet that is
decided skips the jumps one by one, and returns after five at most.

Invariant:
  GRP-1  An endpoint's packets meet the same policies in the same order, and none after one that
         decided, as if each were named by the endpoint's chain.
Tested in tests/felix/rules/test_groups.py.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha3_224

from felix.calc.policy_model import Run, TierView
from felix.rules import names
from felix.rules.model import Chain, Jump, Mark, Marks, Return, Rule, is_clear
from libcalico.model.keys import ResourceKey

BLOCK = 5
"""Jumps between two looks at whether a packet is decided."""
KINDS = 64
Members = tuple[ResourceKey, ...]


class GroupKey(ResourceKey):
    """What a group is called by; equal keys have equal members."""

    members: Members
    ingress: bool

    @classmethod
    def of(cls, selector: str, members: Members, *, ingress: bool) -> GroupKey:
        """The key of these policies of one selector, in order."""
        policies = [names.policy_id(key) for key in members]
        lines = (selector, "inbound" if ingress else "outbound", str(len(policies)), *policies)
        digest = sha3_224("".join(f"{line}\n" for line in lines).encode()).digest()
        room = names.MAX_CHAIN - len(names.GROUP_INGRESS)
        key = cls(names.GROUP, urlsafe_b64encode(digest).decode()[:room])
        key.members, key.ingress = members, ingress
        return key


@lru_cache(maxsize=2 * KINDS)
def groups(tier: TierView, *, ingress: bool) -> tuple[GroupKey, ...]:
    """The groups of one direction, in order."""
    keys, runs = _direction(tier, ingress)
    return tuple(
        GroupKey.of(run.selector, keys[run.first : run.end], ingress=ingress) for run in runs
    )


def named(tier: TierView, *, ingress: bool) -> Iterator[ResourceKey]:
    """What an endpoint's chain jumps to, in order: policies, and groups for those in one."""
    keys, runs = _direction(tier, ingress)
    at = 0
    for run, group in zip(runs, groups(tier, ingress=ingress), strict=True):
        yield from keys[at : run.first]
        yield group
        at = run.end
    yield from keys[at:]


def group_chain(group: GroupKey, marks: Marks) -> Chain:
    """The chain of a group; a packet enters undecided and leaves with the mark of the decision."""
    decides = marks.accept | marks.passed
    prefix = names.POLICY_INGRESS if group.ingress else names.POLICY_EGRESS
    own = names.GROUP_INGRESS if group.ingress else names.GROUP_EGRESS
    rules: list[Rule] = []
    for number, key in enumerate(group.members):
        jump = Jump(names.policy_chain(prefix, key))
        if number % BLOCK:
            rules.append(Rule(jump, (is_clear(decides),)))
            continue
        if number:
            decided = (Mark(0, decides, negated=True),)
            rules.append(Rule(Return(), decided, ("Return on verdict",)))
        rules.append(Rule(jump))
    return Chain(names.policy_chain(own, group), tuple(rules))


def _direction(tier: TierView, ingress: bool) -> tuple[Members, tuple[Run, ...]]:
    if ingress:
        return tier.ingress, tier.ingress_runs
    return tier.egress, tier.egress_runs
