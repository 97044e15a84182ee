"""One endpoint's tiers and profiles, walked with a packet: who decides, and what came before.

The order is that of the endpoint's chain (`felix.rules.endpoints`,
docs/reference/dataplane.md#endpoint-chains): tiers, in each its policies, then the deny at a tier's
end; at last the profiles, and the deny behind them.

Invariants:
  EXP-1  The verdict is the one that the endpoint's chain gives to the first packet of a
         connection.
Tested in tests/felix/explain/test_random.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from felix.calc.policy_model import TierView, Verb
from felix.explain.flow import Packet
from felix.explain.matching import Matcher
from libcalico.model import ResourceKey


class By(Enum):
    """What decides."""

    RULE = "rule"
    TIER_END = "end of tier"
    NO_PROFILE = "no profile matched"
    MISSING_PROFILE = "missing profile"
    NOTHING = "nothing applies"
    FAILSAFE = "failsafe port"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Step:
    """A policy or profile on the way, and what it did: `no match` or `pass`."""

    tier: str
    policy: ResourceKey
    did: str
    rule: int | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict of one endpoint in one direction. `rule` counts resolved rules, from 0.

    `allowed` None: nothing here decides, what comes after does.
    """

    allowed: bool | None
    by: By
    tier: str = ""
    policy: ResourceKey | None = None
    rule: int | None = None
    steps: tuple[Step, ...] = ()
    note: str = ""


def walk(
    tiers: Sequence[TierView],
    profiles: Sequence[str] | None,
    packet: Packet,
    matcher: Matcher,
    *,
    ingress: bool,
) -> Ruling:
    """What these tiers and profiles say; without `profiles` (None) they may decide nothing."""
    steps: list[Step] = []
    for tier in tiers:
        ruling = _tier(tier, packet, matcher, steps, ingress=ingress)
        if ruling is not None:
            return ruling
    if profiles is None:
        return Ruling(None, By.NOTHING, steps=tuple(steps))
    for name in profiles:
        key = ResourceKey("Profile", name)
        hit = matcher.first(key, packet, ingress=ingress)
        if hit is None or hit.verb is Verb.PASS:
            steps.append(Step("", key, "no match" if hit is None else "pass"))
            continue
        missing = matcher.policy(key).missing
        return Ruling(
            hit.verb is Verb.ALLOW,
            By.MISSING_PROFILE if missing else By.RULE,
            "",
            key,
            None if missing else hit.rule,
            tuple(steps),
        )
    return Ruling(False, By.NO_PROFILE, steps=tuple(steps))


def _tier(
    tier: TierView, packet: Packet, matcher: Matcher, steps: list[Step], *, ingress: bool
) -> Ruling | None:
    policies = tier.ingress if ingress else tier.egress
    if not policies:
        return None
    for key in policies:
        hit = matcher.first(key, packet, ingress=ingress)
        if hit is None:
            steps.append(Step(tier.name, key, "no match"))
        elif hit.verb is Verb.PASS:
            steps.append(Step(tier.name, key, "pass", hit.rule))
            return None
        else:
            allowed = hit.verb is Verb.ALLOW
            return Ruling(allowed, By.RULE, tier.name, key, hit.rule, tuple(steps))
    if tier.ends_in_deny:
        return Ruling(False, By.TIER_END, tier.name, steps=tuple(steps))
    return None
