"""How a denied packet says who denied it: the prefix of an NFLOG message.

Calico's groups and form (docs/reference/dataplane.md#policy-chains): group 1 for ingress, 2 for
egress; the prefix is `D`, then `P` for a policy or `R` for a profile, then `I` or `E`, the number
of the rule, and after a bar the name.

    DPI3|np/shop/web    ingress rule 3 of NetworkPolicy shop/web
    DPE|security        the end of tier security, egress
    DRI1|kns.shop       ingress rule 1 of profile kns.shop
    DRI                 no profile allowed it

Rules count from 0, as resolved; a name that is too long stands as its digest, as in chains.

Invariants:
  TEL-1  Telling decides nothing: the rule that tells goes on, and the same rules deny with it
         and without.
Tested in tests/felix/rules/test_nflog_prefix.py and, with packets,
tests/felix/kernel/test_drops.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from felix.rules import names
from felix.rules.model import Condition, Limit, Nflog, Rule
from libcalico.model.keys import ResourceKey

INGRESS_GROUP, EGRESS_GROUP = 1, 2
MOST_PREFIX = 63
"""The kernel's limit is 64 bytes with the zero."""
LIMIT = Limit(10, "second", 20)
"""Rate of each rule, so that a flood is logged but does not fill the log."""
_FORM = re.compile(r"D([PR])([IE])([0-9]*)(?:\|(.*))?")


@dataclass(frozen=True, slots=True)
class Denial:
    """A prefix, read: `rule` None is the end of a tier (`name`) or of all profiles.

    `name` is what `rule_name` gives, or its digest.
    """

    profile: bool
    ingress: bool
    rule: int | None
    name: str


def rule_name(key: ResourceKey) -> str:
    """How a policy or profile is called in a prefix, in full."""
    return key.name if key.kind == "Profile" else names.policy_id(key)


def by_rule(key: ResourceKey, number: int, *, ingress: bool) -> str:
    """The prefix of a rule of a policy or profile."""
    owner = "R" if key.kind == "Profile" else "P"
    head = f"D{owner}{_direction(ingress)}{number}|"
    return names.limited(head, rule_name(key), MOST_PREFIX)


def by_tier(tier: str, *, ingress: bool) -> str:
    """The prefix of a tier's end."""
    return names.limited(f"DP{_direction(ingress)}|", tier, MOST_PREFIX)


def by_profiles(*, ingress: bool) -> str:
    """The prefix of the end of all profiles."""
    return f"DR{_direction(ingress)}"


def telling(prefix: str, match: tuple[Condition, ...], *, ingress: bool) -> Rule:
    """The nflog rule, to stand before the rule that denies the same packets."""
    group = INGRESS_GROUP if ingress else EGRESS_GROUP
    return Rule(Nflog(group, prefix), (*match, LIMIT))


def read(prefix: str) -> Denial | None:
    """What a prefix says, None where it is none of these."""
    match = _FORM.fullmatch(prefix)
    if match is None:
        return None
    owner, direction, number, name = match.groups()
    return Denial(owner == "R", direction == "I", int(number) if number else None, name or "")


def _direction(ingress: bool) -> str:
    return "I" if ingress else "E"
