"""The chains of one workload endpoint: what it may receive and what it may send.

Template of docs/reference/dataplane.md#endpoint-chains; tiers stand in it from the start (wall 4).
The names say the direction of the packet as the workload sees it: `cali-tw-` is to the workload and
uses ingress policies, `cali-fw-` is from it and uses egress policies.

Invariants:
  END-1  Both chains end in a rule that matches everything: no packet falls through.
  END-2  Encapsulated packets never leave a workload; its policy cannot allow them.
Tested in tests/felix/rules/test_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from felix.calc.policy_model import EndpointPolicy, TierView
from felix.rules import limits as limiting
from felix.rules import names, nflog_prefix
from felix.rules.groups import named
from felix.rules.model import (
    Accept,
    Action,
    Chain,
    Condition,
    Conntrack,
    Jump,
    Limit,
    Marks,
    NoTrack,
    Ports,
    Protocol,
    Return,
    Rule,
    Side,
    clear_bits,
    is_clear,
    is_set,
    set_bits,
)
from felix.rules.nflog_prefix import Tell, Verdict
from libcalico.conversion.traffic_limits import ChainLimits
from libcalico.model.keys import ResourceKey

UDP, IPIP = 17, 4
KINDS = 64
"""Tiers whose rules are remembered: endpoints of a kind see the same."""


@dataclass(frozen=True, slots=True)
class TierChains:
    """One tier as an endpoint sees it: the chains of policies and groups, in order.

    `ends_in_deny` is false where the tier passes on what none of its policies decided.
    """

    name: str
    ingress: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    ends_in_deny: bool = True


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """What the rules of one endpoint depend on; what nothing decides is denied."""

    interface: str
    admin_up: bool = True
    tiers: tuple[TierChains, ...] = ()
    profiles: tuple[str, ...] = ()
    limits: ChainLimits | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Actions that configuration chooses. `log_limit`: how often Log rules may speak.

    `tell`: what is told while a reader is there (`felix.rules.nflog_prefix`).
    """

    allow: Action
    deny: Action
    vxlan_port: int = 4789
    vxlan_from_workloads: bool = False
    ipip_from_workloads: bool = False
    log_prefix: str = "calico-packet"
    log_limit: Limit | None = None
    drop_invalid: bool = True
    tell: Tell = Tell.NOTHING


def tier_chains(tiers: Iterable[TierView]) -> tuple[TierChains, ...]:
    """Tiers as the calculation gives them, in names of chains."""
    return tuple(map(_tier_chains, tiers))


@lru_cache(maxsize=KINDS)
def _tier_chains(tier: TierView) -> TierChains:
    return TierChains(
        tier.name,
        tuple(_chain(key, ingress=True) for key in named(tier, ingress=True)),
        tuple(_chain(key, ingress=False) for key in named(tier, ingress=False)),
        tier.ends_in_deny,
    )


def _chain(key: ResourceKey, *, ingress: bool) -> str:
    if key.kind == names.GROUP:
        return names.policy_chain(names.GROUP_INGRESS if ingress else names.GROUP_EGRESS, key)
    return names.policy_chain(names.POLICY_INGRESS if ingress else names.POLICY_EGRESS, key)


def endpoint_rules(
    interface: str, policy: EndpointPolicy, limits: ChainLimits | None = None
) -> EndpointRules:
    """The policy of an endpoint, in names of chains."""
    tiers = tier_chains(policy.tiers)
    return EndpointRules(interface, tiers=tiers, profiles=policy.profiles, limits=limits)


def endpoint_chains(endpoint: EndpointRules, marks: Marks, verdicts: Verdicts) -> list[Chain]:
    """`cali-tw-IF` and `cali-fw-IF`."""
    return [
        Chain(names.endpoint_chain(prefix, endpoint.interface), rules)
        for prefix, rules in (
            (names.TO_WORKLOAD, _workload(endpoint, True, marks, verdicts)),
            (names.FROM_WORKLOAD, _workload(endpoint, False, marks, verdicts)),
        )
    ]


def _workload(
    endpoint: EndpointRules, ingress: bool, marks: Marks, verdicts: Verdicts
) -> tuple[Rule, ...]:
    if not endpoint.admin_up:
        return (Rule(verdicts.deny, comments=("Endpoint admin disabled",)),)
    return (
        *limiting.rate_rules(endpoint.limits, ingress, marks),
        *connection_rules(marks, verdicts),
        *limiting.connection_rules(endpoint.limits, ingress),
        Rule(clear_bits(marks.accept | marks.passed)),
        *(() if ingress else _encapsulation_rules(verdicts)),
        *tier_rules(endpoint.tiers, ingress, marks, verdicts),
        *profile_rules(endpoint.profiles, ingress, marks, verdicts),
    )


def tier_rules(
    tiers: Iterable[TierChains],
    ingress: bool,
    marks: Marks,
    verdicts: Verdicts,
    *,
    untracked: bool = False,
) -> list[Rule]:
    """The tiers that have policies in one direction, in order."""
    rules: list[Rule] = []
    for tier in tiers:
        rules += _tier_rules(tier, ingress, marks, verdicts, untracked)
    return rules


@lru_cache(maxsize=2 * KINDS)
def _tier_rules(
    tier: TierChains, ingress: bool, marks: Marks, verdicts: Verdicts, untracked: bool
) -> tuple[Rule, ...]:
    chains = tier.ingress if ingress else tier.egress
    if not chains:
        return ()
    rules = [Rule(clear_bits(marks.passed), comments=(f"Start of tier {tier.name}",))]
    for chain in chains:
        rules.append(Rule(Jump(chain), (is_clear(marks.passed),)))
        if untracked:
            rules.append(Rule(NoTrack(), (is_set(marks.accept),)))
        rules.append(_return_if_accepted(marks, "Return if policy accepted"))
    if tier.ends_in_deny:
        end = f"End of tier {tier.name}. Drop if no policies passed packet"
        undecided = (is_clear(marks.passed),)
        if verdicts.tell:
            said = nflog_prefix.by_tier(tier.name, ingress=ingress)
            rules.append(nflog_prefix.telling(verdicts.tell, said, undecided, ingress=ingress))
        rules.append(Rule(verdicts.deny, undecided, (end,)))
    elif verdicts.tell is Tell.FLOWS:
        said = nflog_prefix.by_tier(tier.name, ingress=ingress, verdict=Verdict.PASSED)
        undecided = (is_clear(marks.passed),)
        rules.append(nflog_prefix.telling(verdicts.tell, said, undecided, ingress=ingress))
    return tuple(rules)


def profile_rules(
    profiles: Iterable[str], ingress: bool, marks: Marks, verdicts: Verdicts
) -> list[Rule]:
    """The profiles, and the end of what none of them accepts."""
    prefix = names.PROFILE_INGRESS if ingress else names.PROFILE_EGRESS
    rules: list[Rule] = []
    for name in profiles:
        rules.append(Rule(Jump(names.limited(prefix, name))))
        rules.append(_return_if_accepted(marks, "Return if profile accepted"))
    if verdicts.tell:
        said = nflog_prefix.by_profiles(ingress=ingress)
        rules.append(nflog_prefix.telling(verdicts.tell, said, (), ingress=ingress))
    return [*rules, Rule(verdicts.deny, comments=("Drop if no profiles matched",))]


@lru_cache(maxsize=8)
def _return_if_accepted(marks: Marks, comment: str) -> Rule:
    return Rule(Return(), (is_set(marks.accept),), (comment,))


def connection_rules(marks: Marks, verdicts: Verdicts) -> list[Rule]:
    """What belongs to a connection that was let in passes; what belongs to none does not."""
    known: tuple[Condition, ...] = (Conntrack(("RELATED", "ESTABLISHED")),)
    rules = [Rule(verdicts.allow, known)]
    if verdicts.drop_invalid:
        rules.append(Rule(verdicts.deny, (Conntrack(("INVALID",)),)))
    if not isinstance(verdicts.allow, Accept):
        rules.insert(0, Rule(set_bits(marks.accept), known))
    return rules


def _encapsulation_rules(verdicts: Verdicts) -> list[Rule]:
    rules = []
    if not verdicts.vxlan_from_workloads:
        port = (verdicts.vxlan_port, verdicts.vxlan_port)
        rules.append(
            Rule(
                verdicts.deny,
                (Protocol(UDP), Ports(Side.DESTINATION, (port,))),
                ("Drop VXLAN encapped packets originating in workloads",),
            )
        )
    if not verdicts.ipip_from_workloads:
        rules.append(
            Rule(
                verdicts.deny,
                (Protocol(IPIP),),
                ("Drop IPinIP encapped packets originating in workloads",),
            )
        )
    return rules
