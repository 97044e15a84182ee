"""The chains of host endpoints: what the host itself sends, receives and forwards.

Source: docs/reference/dataplane.md#dispatch, #failsafes, #endpoint-chains, #host-endpoints. One
interface of the host may have chains in three tables, each for another kind of policy, and a table
has dispatch chains of its own:

    filter  cali-fh-IF, cali-th-IF        normal policy: to and from the host itself
            cali-fhfw-IF, cali-thfw-IF    applyOnForward: what passes through
    mangle  cali-fh-IF                    preDNAT: before addresses are translated
            cali-th-IF                    normal egress of what was translated on its way out
    raw     cali-fh-IF, cali-th-IF        doNotTrack: before connections are tracked

`*` is a host endpoint too: its chains are those of `any-interface-at-all`, and the dispatch ends
with them.

Invariants:
  HST-1  Failsafe ports are open under every normal, preDNAT and untracked policy; forwarded traffic
         has none.
  HST-2  An interface that has a host endpoint of its own never meets the chains of `*`, in no
         table.
  HST-3  What the host sends to a workload of its own is not judged by `*`.
  HST-4  Untracked and preDNAT chains decide nothing about what none of their rules matches.
Tested in tests/felix/rules/test_hosts.py and, with packets, tests/felix/kernel/test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from felix.calc.policy_model import ANY_INTERFACE, EndpointPolicy
from felix.rules import names
from felix.rules.endpoints import (
    Verdicts,
    connection_rules,
    profile_rules,
    tier_chains,
    tier_rules,
)
from felix.rules.model import (
    Accept,
    Action,
    Chain,
    Condition,
    Drop,
    Goto,
    InInterface,
    IPNetwork,
    Jump,
    Marks,
    Net,
    OutInterface,
    Ports,
    Protocol,
    Return,
    Rule,
    Side,
    clear_bits,
    set_bits,
)
from felix.rules.nflog_prefix import Tell

TABLES = ("raw", "mangle", "filter")
DISPATCH = {
    "raw": (names.FROM_HOST_DISPATCH, names.TO_HOST_DISPATCH),
    "mangle": (names.FROM_HOST_DISPATCH, names.TO_HOST_DISPATCH),
    "filter": (
        names.FROM_HOST_DISPATCH,
        names.TO_HOST_DISPATCH,
        names.FROM_FORWARD_DISPATCH,
        names.TO_FORWARD_DISPATCH,
    ),
}
"""The dispatch chains of each table."""
_PREFIXES = {
    names.FROM_HOST_DISPATCH: names.FROM_HOST,
    names.TO_HOST_DISPATCH: names.TO_HOST,
    names.FROM_FORWARD_DISPATCH: names.FROM_HOST_FORWARD,
    names.TO_FORWARD_DISPATCH: names.TO_HOST_FORWARD,
}


@dataclass(frozen=True, slots=True)
class Failsafe:
    """A port that stays open; `net` narrows it to peers in a network."""

    protocol: int
    port: int
    net: IPNetwork | None = None


@dataclass(frozen=True, slots=True)
class HostRules:
    """The inputs of host endpoints' rules from felix's configuration."""

    failsafe_in: tuple[Failsafe, ...] = ()
    failsafe_out: tuple[Failsafe, ...] = ()


def verdicts_of(table: str, verdicts: Verdicts, mangle_allow: Action) -> Verdicts:
    """How a table lets pass and denies: only filter knows REJECT, and tells for flow logs."""
    if table == "filter":
        return verdicts
    allow = mangle_allow if table == "mangle" else Accept()
    return replace(verdicts, allow=allow, deny=Drop(), tell=min(verdicts.tell, Tell.DENIED))


def host_chains(
    interface: str, policy: EndpointPolicy, table: str, marks: Marks, verdicts: Verdicts
) -> list[Chain]:
    """The chains of one host endpoint in one table; `verdicts` are the table's."""
    name = names.ANY_INTERFACE if interface == ANY_INTERFACE else interface
    chains: list[Chain] = []

    def chain(prefix: str, rules: Iterable[Rule]) -> None:
        chains.append(Chain(names.endpoint_chain(prefix, name), tuple(rules)))

    if table == "filter":
        chain(names.TO_HOST, _normal(policy, False, marks, verdicts))
        chain(names.FROM_HOST, _normal(policy, True, marks, verdicts))
        chain(names.TO_HOST_FORWARD, _forward(policy, False, marks, verdicts))
        chain(names.FROM_HOST_FORWARD, _forward(policy, True, marks, verdicts))
    elif table == "mangle":
        chain(names.TO_HOST, _normal(policy, False, marks, verdicts))
        if policy.pre_dnat:
            chain(names.FROM_HOST, _pre_dnat(policy, marks, verdicts))
    elif policy.untracked:
        chain(names.TO_HOST, _untracked(policy, False, marks, verdicts))
        chain(names.FROM_HOST, _untracked(policy, True, marks, verdicts))
    return chains


def _failsafe(ingress: bool) -> Rule:
    return Rule(Jump(names.FAILSAFE_IN if ingress else names.FAILSAFE_OUT))


def _normal(
    policy: EndpointPolicy, ingress: bool, marks: Marks, verdicts: Verdicts
) -> tuple[Rule, ...]:
    return (
        *connection_rules(marks, verdicts),
        _failsafe(ingress),
        Rule(clear_bits(marks.accept | marks.passed)),
        *tier_rules(tier_chains(policy.tiers), ingress, marks, verdicts),
        *profile_rules(policy.profiles, ingress, marks, verdicts),
    )


def _forward(
    policy: EndpointPolicy, ingress: bool, marks: Marks, verdicts: Verdicts
) -> tuple[Rule, ...]:
    tiers = tier_rules(tier_chains(policy.forward), ingress, marks, verdicts)
    if not tiers:
        open_ = ("Allow forwarded traffic by default",)
        tiers = [Rule(set_bits(marks.accept), comments=open_), Rule(Return())]
    return (
        *connection_rules(marks, verdicts),
        Rule(clear_bits(marks.accept | marks.passed)),
        *tiers,
    )


def _pre_dnat(policy: EndpointPolicy, marks: Marks, verdicts: Verdicts) -> tuple[Rule, ...]:
    return (
        *connection_rules(marks, verdicts),
        _failsafe(True),
        Rule(clear_bits(marks.accept | marks.passed)),
        *tier_rules(tier_chains(policy.pre_dnat), True, marks, verdicts),
    )


def _untracked(
    policy: EndpointPolicy, ingress: bool, marks: Marks, verdicts: Verdicts
) -> tuple[Rule, ...]:
    tiers = tier_chains(policy.untracked)
    return (
        _failsafe(ingress),
        Rule(clear_bits(marks.accept | marks.passed)),
        *tier_rules(tiers, ingress, marks, verdicts, untracked=True),
    )


def dispatch_chains(
    table: str, chains: Mapping[str, Iterable[Chain]], prefixes: Iterable[str]
) -> list[Chain]:
    """From the host's interfaces to their chains.

    `chains`: what `host_chains` gave in this table for each interface; `prefixes`: those of
    workload interfaces.
    """
    made = {interface: {chain.name for chain in own} for interface, own in chains.items()}
    dispatch = []
    for root in DISPATCH[table]:
        matching = InInterface if root.startswith("cali-from-") else OutInterface
        prefix = _PREFIXES[root]
        default = names.endpoint_chain(prefix, names.ANY_INTERFACE)
        ends = default in made.get(ANY_INTERFACE, ())
        rules: list[Rule] = []
        for interface in sorted(made.keys() - {ANY_INTERFACE}):
            match: tuple[Condition, ...] = (matching(interface),)
            own = names.endpoint_chain(prefix, interface)
            if own in made[interface]:
                rules.append(Rule(Goto(own), match))
            elif ends:
                # HST-2.
                rules.append(Rule(Return(), match))
        if ends:
            if root == names.TO_HOST_DISPATCH and table != "filter":
                why = ("Skip policy of all interfaces for a local workload",)
                rules += [Rule(Return(), (OutInterface(f"{p}+"),), why) for p in prefixes]
            rules.append(Rule(Goto(default)))
        dispatch.append(Chain(root, tuple(rules)))
    return dispatch


def failsafe_chains(table: str, version: int, hosts: HostRules) -> list[Chain]:
    """The ports that stay open (HST-1); raw sees answers too, for it knows no connections."""
    into = _ports(hosts.failsafe_in, version, Side.DESTINATION, Side.SOURCE)
    out = _ports(hosts.failsafe_out, version, Side.DESTINATION, Side.DESTINATION)
    if table == "raw":
        into += _ports(hosts.failsafe_out, version, Side.SOURCE, Side.SOURCE)
        out += _ports(hosts.failsafe_in, version, Side.SOURCE, Side.DESTINATION)
    return [Chain(names.FAILSAFE_IN, tuple(into)), Chain(names.FAILSAFE_OUT, tuple(out))]


def _ports(entries: Iterable[Failsafe], version: int, port: Side, peer: Side) -> list[Rule]:
    rules = []
    for entry in entries:
        if entry.net is not None and entry.net.version != version:
            continue
        match: list[Condition] = [Protocol(entry.protocol)]
        if entry.net is not None:
            match.append(Net(peer, entry.net))
        match.append(Ports(port, ((entry.port, entry.port),)))
        rules.append(Rule(Accept(), tuple(match)))
    return rules
