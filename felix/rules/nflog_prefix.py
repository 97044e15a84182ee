"""How a packet says which rule decided about it: the prefix of an NFLOG message.

Calico's groups and form (docs/reference/dataplane.md#policy-chains): group 1 for ingress, 2 for
egress; the prefix is the verdict (`D` denied, `A` allowed, `P` passed on to the next tier), then
`P` for a policy or `R` for a profile, then `I` or `E`, the number of the rule, and after a bar the
name.

    DPI3|np/shop/web    ingress rule 3 of NetworkPolicy shop/web denied it
    APE0|gnp/dns        egress rule 0 of GlobalNetworkPolicy dns allowed it
    DPE|security        the end of tier security, egress
    PPI|platform        tier platform passed on what none of its policies decided
    DRI1|kns.shop       ingress rule 1 of profile kns.shop
    DRI                 no profile allowed it

Rules count from 0, as resolved; a name that is too long stands as its digest, as in chains.
Staged policies have no rules in the kernel, here as in Calico: what they would do is calculated
(`felix.flows.pending`).

Invariants:
  TEL-1  Telling decides nothing: the rule that tells goes on, and the same rules allow, pass on
         and deny with it and without.
Tested in tests/felix/rules/test_nflog_prefix.py and, with packets,
tests/felix/kernel/test_drops.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum

from felix.rules import names
from felix.rules.model import Condition, Limit, Nflog, Rule
from libcalico.model.keys import ResourceKey

INGRESS_GROUP, EGRESS_GROUP = 1, 2
MOST_PREFIX = 63
"""The kernel's limit is 64 bytes with the zero."""
LIMIT = Limit(10, "second", 20)
"""Rate of each rule, so that a flood is told of but does not fill the log."""
_FORM = re.compile(r"([DAP])([PR])([IE])([0-9]*)(?:\|(.*))?")


class Tell(IntEnum):
    """What rules tell of: nothing, some of the denied packets, or for flow logs each first packet.

    `FLOWS` includes the denied packets, all of them: what a reader cannot take the kernel counts.
    """

    NOTHING = 0
    DENIED = 1
    FLOWS = 2


class Verdict(Enum):
    """What a rule did with the packet that it told of."""

    DENIED = "D"
    ALLOWED = "A"
    PASSED = "P"


@dataclass(frozen=True, slots=True)
class Said:
    """A prefix, read: `rule` None is the end of a tier (`name`) or of all profiles.

    `name` is what `rule_name` gives, or its digest.
    """

    profile: bool
    ingress: bool
    rule: int | None
    name: str
    verdict: Verdict = Verdict.DENIED


def rule_name(key: ResourceKey) -> str:
    """How a policy or profile is called in a prefix, in full."""
    return key.name if key.kind == "Profile" else names.policy_id(key)


def by_rule(
    key: ResourceKey, number: int, *, ingress: bool, verdict: Verdict = Verdict.DENIED
) -> str:
    """The prefix of a rule of a policy or profile."""
    owner = "R" if key.kind == "Profile" else "P"
    head = f"{verdict.value}{owner}{_direction(ingress)}{number}|"
    return names.limited(head, rule_name(key), MOST_PREFIX)


def with_verdict(prefix: str, verdict: Verdict) -> str:
    """The prefix of the same rule with another verdict."""
    return verdict.value + prefix[1:]


def by_tier(tier: str, *, ingress: bool, verdict: Verdict = Verdict.DENIED) -> str:
    """The prefix of a tier's end, which denies, or passes on to the next tier."""
    return names.limited(f"{verdict.value}P{_direction(ingress)}|", tier, MOST_PREFIX)


def by_profiles(*, ingress: bool) -> str:
    """The prefix of the end of all profiles."""
    return f"DR{_direction(ingress)}"


def telling(tell: Tell, prefix: str, match: tuple[Condition, ...], *, ingress: bool) -> Rule:
    """The nflog rule, to stand before the rule that decides about the same packets."""
    group = INGRESS_GROUP if ingress else EGRESS_GROUP
    limit = () if tell is Tell.FLOWS else (LIMIT,)
    return Rule(Nflog(group, prefix), (*match, *limit))


def read(prefix: str) -> Said | None:
    """What a prefix says, None where it is none of these."""
    match = _FORM.fullmatch(prefix)
    if match is None:
        return None
    verdict, owner, direction, number, name = match.groups()
    rule = int(number) if number else None
    return Said(owner == "R", direction == "I", rule, name or "", Verdict(verdict))


def says_ingress(prefix: str) -> bool:
    """Whether a prefix of ours tells of a packet that was to come in."""
    return prefix[2:3] == "I"


def _direction(ingress: bool) -> str:
    return "I" if ingress else "E"
