"""The chains of one workload endpoint: what it may receive and what it may send.

Template of the dataplane reference 2.9; tiers stand in it from the start (wall 4). The names
say the direction of the packet as the workload sees it: `cali-tw-` is to the workload and
uses ingress policies, `cali-fw-` is from it and uses egress policies.

Invariants:
  END-1  Both chains end in a rule that matches everything: no packet falls through.
  END-2  Encapsulated packets never leave a workload, whatever its policy says.
Tested in tests/felix/test_rules.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from felix.calc.policy_model import EndpointPolicy
from felix.rules import names
from felix.rules.model import (
    Accept,
    Action,
    Chain,
    Condition,
    Conntrack,
    Jump,
    Marks,
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

UDP, IPIP = 17, 4


@dataclass(frozen=True, slots=True)
class TierChains:
    """One tier as an endpoint sees it: the policy chains of each direction, in order.

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


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Actions that configuration chooses."""

    allow: Action
    deny: Action
    vxlan_port: int = 4789
    vxlan_from_workloads: bool = False
    ipip_from_workloads: bool = False
    log_prefix: str = "calico-packet"


def endpoint_rules(interface: str, policy: EndpointPolicy) -> EndpointRules:
    """What the calculation says of an endpoint, in names of chains."""
    return EndpointRules(
        interface,
        tiers=tuple(
            TierChains(
                tier.name,
                tuple(names.policy_chain(names.POLICY_INGRESS, key) for key in tier.ingress),
                tuple(names.policy_chain(names.POLICY_EGRESS, key) for key in tier.egress),
                tier.ends_in_deny,
            )
            for tier in policy.tiers
        ),
        profiles=policy.profiles,
    )


def endpoint_chains(endpoint: EndpointRules, marks: Marks, verdicts: Verdicts) -> list[Chain]:
    """`cali-tw-IF` and `cali-fw-IF`."""
    ingress = [(t, t.ingress) for t in endpoint.tiers if t.ingress]
    egress = [(t, t.egress) for t in endpoint.tiers if t.egress]
    profiles_in = [names.limited(names.PROFILE_INGRESS, name) for name in endpoint.profiles]
    profiles_out = [names.limited(names.PROFILE_EGRESS, name) for name in endpoint.profiles]
    return [
        _chain(names.TO_WORKLOAD, endpoint, ingress, profiles_in, marks, verdicts),
        _chain(names.FROM_WORKLOAD, endpoint, egress, profiles_out, marks, verdicts),
    ]


def _chain(
    prefix: str,
    endpoint: EndpointRules,
    tiers: list[tuple[TierChains, tuple[str, ...]]],
    profiles: list[str],
    marks: Marks,
    verdicts: Verdicts,
) -> Chain:
    name = names.endpoint_chain(prefix, endpoint.interface)
    deny = verdicts.deny
    if not endpoint.admin_up:
        return Chain(name, (Rule(deny, comments=("Endpoint admin disabled",)),))
    rules = _connection_rules(marks, verdicts)
    rules.append(Rule(clear_bits(marks.accept | marks.passed)))
    if prefix == names.FROM_WORKLOAD:
        rules += _encapsulation_rules(verdicts)
    for tier, chains in tiers:
        rules.append(Rule(clear_bits(marks.passed), comments=(f"Start of tier {tier.name}",)))
        for chain in chains:
            rules.append(Rule(Jump(chain), (is_clear(marks.passed),)))
            rules.append(_return_if_accepted(marks, "Return if policy accepted"))
        if tier.ends_in_deny:
            end = f"End of tier {tier.name}. Drop if no policies passed packet"
            rules.append(Rule(deny, (is_clear(marks.passed),), (end,)))
    for chain in profiles:
        rules.append(Rule(Jump(chain)))
        rules.append(_return_if_accepted(marks, "Return if profile accepted"))
    rules.append(Rule(deny, comments=("Drop if no profiles matched",)))
    return Chain(name, tuple(rules))


def _return_if_accepted(marks: Marks, comment: str) -> Rule:
    return Rule(Return(), (is_set(marks.accept),), (comment,))


def _connection_rules(marks: Marks, verdicts: Verdicts) -> list[Rule]:
    known: tuple[Condition, ...] = (Conntrack(("RELATED", "ESTABLISHED")),)
    rules = [Rule(verdicts.allow, known), Rule(verdicts.deny, (Conntrack(("INVALID",)),))]
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
