"""The static chains of a node without host endpoints: what packets meet in vain is left out.

Most nodes have no host endpoint. There the chains that lead to theirs hold nothing, and the marks
that carry their verdicts from table to table say nothing; but an established packet between two
pods met more than twenty such rules, and a fourth of its time was theirs. So without a host
endpoint the tables hold this:

    raw     PREROUTING   what no workload may send
    mangle  POSTROUTING  the DSCP of what leaves the cluster, where a workload asks for one
    nat     POSTROUTING  masquerading, where a pool or a tunnel asks for it
    filter  INPUT        tunnel packets; a workload's packets to its node
            FORWARD      the workloads' chains
            OUTPUT       tunnel packets, where there are tunnels; what IPVS sends on

The chains have the names that they have with host endpoints (`felix.rules.static`), and the
invariants STC-1 to STC-5 hold alike.

Invariant:
  BAR-1  No verdict depends on a mark that a packet came with: one of our marks is read only where
         the chain of a workload has set or cleared it before.
Tested in tests/felix/rules/test_static_chains.py and, with packets, wherever no host endpoint is.
"""

from __future__ import annotations

from felix.rules import guards, ipvs, names
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.limits import dscp_rules
from felix.rules.model import (
    Chain,
    Condition,
    Drop,
    Goto,
    InInterface,
    Jump,
    OutInterface,
    Return,
    ReversePathFails,
    Rule,
    TableModel,
    is_set,
)
from felix.rules.nat import bare_nat_table
from felix.rules.tunnels import incoming, outgoing, own_source, untracked


def tables(version: int, settings: RuleSettings, facts: Facts) -> dict[str, TableModel]:
    """Every table of one family, without what endpoints and policies add."""
    last = tuple(own_source(facts.tunnels, settings.nat.random_fully))
    return {
        "raw": _raw(version, settings, facts),
        "mangle": _mangle(version, settings, facts),
        "nat": bare_nat_table(version, settings.nat, facts.nat_outgoing, last, facts.floating),
        "filter": _filter(version, settings, facts),
    }


def _raw(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    skip = Chain("cali-rpf-skip", tuple(guards.spoofing(version, facts.spoofing)))
    tunnels = tuple(untracked(facts.tunnels))
    prerouting = list(tunnels)
    for prefix in settings.prefixes:
        workload = InInterface(f"{prefix}+")
        prerouting += guards.forged_advice(version, workload)
        if skip.rules:
            prerouting.append(Rule(Jump(skip.name), (workload,)))
        # Always DROP: the raw table knows no REJECT.
        prerouting.append(Rule(Drop(), (workload, ReversePathFails())))
        prerouting += guards.loopback(version, workload)
    chains = [Chain("cali-PREROUTING", tuple(prerouting))]
    if skip.rules:
        chains.append(skip)
    if tunnels:
        chains.append(Chain("cali-OUTPUT", tunnels))
    return _hooked("raw", chains, settings.append)


def _mangle(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    leaving, marking = dscp_rules(version, facts.dscp)
    if not leaving:
        return TableModel("mangle", ())
    return _hooked("mangle", [Chain("cali-POSTROUTING", leaving), *marking], settings.append)


def _filter(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    allow, deny = settings.verdicts.allow, settings.verdicts.deny
    into = [
        *incoming(version, facts.tunnels, allow, deny),
        *ipvs.incoming(version, settings, facts.ipvs),
        *(
            Rule(Goto(names.WORKLOAD_TO_HOST), (InInterface(f"{prefix}+"),))
            for prefix in settings.prefixes
        ),
    ]
    forward, accepted = [], []
    explicit = ("Policy explicitly accepted packet.",)
    for prefix in settings.prefixes:
        ends: tuple[tuple[str, Condition], ...] = (
            (names.FROM_WORKLOAD_DISPATCH, InInterface(f"{prefix}+")),
            (names.TO_WORKLOAD_DISPATCH, OutInterface(f"{prefix}+")),
        )
        for root, end in ends:
            forward.append(Rule(Jump(root), (end,)))
            # BAR-1: a packet with an end at a workload has met its chain.
            accepted.append(Rule(allow, (end, is_set(settings.marks.accept)), explicit))
    loops = guards.loop_prevention(version, settings.loop_prevention, facts.service_nets)
    if loops.rules:
        forward.append(Rule(Jump(loops.name)))
    chains = [
        Chain("cali-INPUT", tuple(into)),
        Chain("cali-FORWARD", tuple(forward)),
        guards.to_host(version, allow, settings.endpoint_to_host),
        *([loops] if loops.rules else ()),
        *ipvs.chains(version, settings, facts.ipvs, hosts=False),
    ]
    out, served = outgoing(version, facts.tunnels, allow), ipvs.outgoing(settings, facts.ipvs)
    if out or served:
        # What the host sends to its own workload has nothing to do with tunnels.
        own = [Rule(Return(), (OutInterface(f"{prefix}+"),)) for prefix in settings.prefixes]
        chains.append(Chain("cali-OUTPUT", (*served, *own, *out)))
    return _hooked("filter", chains, settings.append, FORWARD=tuple(accepted))


def _hooked(table: str, chains: list[Chain], append: bool, **fixed: tuple[Rule, ...]) -> TableModel:
    """The table with hooks for those of its chains that bear the name of one of the kernel's."""
    kernel = [name for chain in chains if (name := chain.name.removeprefix("cali-")).isupper()]
    inserts, appends = guards.hooks(kernel, append, **fixed)
    return TableModel(table, tuple(chains), inserts, appends)
