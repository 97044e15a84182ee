"""The chains that every node has: hooks into the kernel's chains and what they lead to.

Here with host endpoints, which is Calico's form; without one it is shorter
(`felix.rules.static_chains`).

Source: docs/reference/dataplane.md, in its order; the chains of host endpoints that they lead to
are the rule book's (felix.rules.hosts). What a packet meets: raw (marks cleared, spoofed sources
dropped), mangle, nat, then filter: INPUT for what a workload sends to its node, FORWARD for
the rest.

Invariants:
  STC-1  A workload's packet whose source is not routed back to its interface is dropped before
         anything else looks at it, with any setting of the rp_filter sysctls.
  STC-2  A packet between two workloads is judged by the sender's and the receiver's chain.
  STC-3  Traffic between addresses of pools is never masqueraded.
  STC-4  Neither router advertisements nor redirects of a workload reach any host, nor does anything
         that it sends to the node's loopback or from the unspecified address (`::`).
  STC-5  A packet for a service's address that was not translated does not leave the node.
Tested in tests/felix/rules/test_rules.py and, with packets, tests/felix/kernel/test_forwarding.py.
"""

from __future__ import annotations

from felix.rules import guards, ipvs, names, static_chains
from felix.rules.inputs import NOTHING_SPECIAL, Facts, RuleSettings
from felix.rules.limits import dscp_rules
from felix.rules.model import (
    Accept,
    Chain,
    Conntrack,
    Drop,
    Goto,
    InInterface,
    Jump,
    OutInterface,
    Return,
    ReversePathFails,
    Rule,
    TableModel,
    clear_bits,
    is_clear,
    is_set,
    set_bits,
)
from felix.rules.nat import nat_table
from felix.rules.tunnels import incoming, outgoing, own_source, untracked

_HOST_ACCEPTED = "Host endpoint policy accepted packet."


def tables(
    version: int, settings: RuleSettings, facts: Facts = NOTHING_SPECIAL
) -> dict[str, TableModel]:
    """Every table of one family, without what endpoints and policies add."""
    if not facts.hosts:
        return static_chains.tables(version, settings, facts)
    return {
        "raw": _raw(version, settings, facts),
        "mangle": _mangle(version, settings, facts),
        "nat": nat_table(
            version,
            settings.nat,
            facts.nat_outgoing,
            settings.append,
            own_source(facts.tunnels, settings.nat.random_fully),
            facts.floating,
        ),
        "filter": _filter(version, settings, facts),
    }


def _raw(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    marks = settings.marks
    workload = marks.scratch0
    prerouting = [
        Rule(clear_bits(marks.all)),
        *untracked(facts.tunnels),
        *(Rule(set_bits(workload), (InInterface(f"{p}+"),)) for p in settings.prefixes),
        *guards.forged_advice(version, is_set(workload)),
        Rule(Jump("cali-rpf-skip"), (is_set(workload),)),
        # Always DROP: the raw table knows no REJECT.
        Rule(Drop(), (is_set(workload), ReversePathFails())),
        Rule(Jump(names.FROM_HOST_DISPATCH), (is_clear(workload),)),
        Rule(Accept(), (is_set(marks.accept),)),
        # Behind Calico's own, whose hashes cover what stands before them.
        *guards.loopback(version, is_set(workload)),
    ]
    output = [
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.TO_HOST_DISPATCH)),
        *untracked(facts.tunnels),
        Rule(Accept(), (is_set(marks.accept),)),
    ]
    chains = (
        Chain("cali-PREROUTING", tuple(prerouting)),
        Chain("cali-OUTPUT", tuple(output)),
        Chain("cali-rpf-skip", tuple(guards.spoofing(version, facts.spoofing))),
    )
    inserts, appends = guards.hooks(("PREROUTING", "OUTPUT"), settings.append)
    return TableModel("raw", chains, inserts, appends)


def _mangle(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    leaving, marking = dscp_rules(version, facts.dscp)
    marks, allow = settings.marks, settings.mangle_allow
    accepted = (is_set(marks.accept),)
    prerouting = (
        Rule(allow, (Conntrack(("RELATED", "ESTABLISHED")),)),
        Rule(allow, accepted),
        Rule(Jump(names.FROM_HOST_DISPATCH)),
        Rule(allow, accepted, (_HOST_ACCEPTED,)),
    )
    postrouting = (
        *leaving,
        Rule(Return(), accepted),
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.TO_HOST_DISPATCH), (Conntrack(("DNAT",)),)),
        Rule(Return(), accepted, (_HOST_ACCEPTED,)),
    )
    chains = (
        Chain("cali-PREROUTING", prerouting),
        Chain("cali-POSTROUTING", postrouting),
        *marking,
    )
    inserts, appends = guards.hooks(("PREROUTING", "POSTROUTING"), settings.append)
    return TableModel("mangle", chains, inserts, appends)


def _filter(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    marks, allow = settings.marks, settings.verdicts.allow
    accepted = (is_set(marks.accept),)
    workloads = settings.prefixes
    deny = settings.verdicts.deny
    cali_input = (
        *incoming(version, facts.tunnels, allow, deny),
        *ipvs.incoming(version, settings, facts.ipvs),
        *(Rule(Goto(names.WORKLOAD_TO_HOST), (InInterface(f"{p}+"),)) for p in workloads),
        Rule(allow, accepted),
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.FROM_HOST_DISPATCH)),
        Rule(allow, accepted, (_HOST_ACCEPTED,)),
    )
    forward: list[Rule] = [
        Rule(clear_bits(marks.passed | marks.scratch0 | marks.scratch1)),
        Rule(Jump(names.FROM_FORWARD_DISPATCH), (is_clear(marks.accept),)),
    ]
    for p in workloads:
        forward.append(Rule(Jump(names.FROM_WORKLOAD_DISPATCH), (InInterface(f"{p}+"),)))
        forward.append(Rule(Jump(names.TO_WORKLOAD_DISPATCH), (OutInterface(f"{p}+"),)))
    forward += [Rule(Jump(names.TO_FORWARD_DISPATCH)), Rule(Jump("cali-cidr-block"))]
    output = (
        *ipvs.outgoing(settings, facts.ipvs),
        Rule(allow, accepted),
        *(Rule(Return(), (OutInterface(f"{p}+"),)) for p in workloads),
        *outgoing(version, facts.tunnels, allow),
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.TO_HOST_DISPATCH), (Conntrack(("DNAT",), negated=True),)),
        Rule(allow, accepted, (_HOST_ACCEPTED,)),
    )
    chains = [
        Chain("cali-INPUT", cali_input),
        Chain("cali-FORWARD", tuple(forward)),
        Chain("cali-OUTPUT", output),
        guards.to_host(version, allow, settings.endpoint_to_host),
        guards.loop_prevention(version, settings.loop_prevention, facts.service_nets),
        *ipvs.chains(version, settings, facts.ipvs, hosts=True),
    ]
    end_of_forward = (
        Rule(allow, accepted, ("Policy explicitly accepted packet.",)),
        Rule(set_bits(marks.accept)),
    )
    inserts, appends = guards.hooks(
        ("INPUT", "FORWARD", "OUTPUT"), settings.append, FORWARD=end_of_forward
    )
    return TableModel("filter", tuple(chains), inserts, appends)
