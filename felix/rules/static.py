"""The chains that every node has: hooks into the kernel's chains and what they lead to.

Dataplane reference 2.2 to 2.6, in its order; the chains of host endpoints that they lead to are
the rule book's (felix.rules.hosts). What a packet meets: raw (marks cleared, spoofed sources
dropped), mangle, nat, then filter: INPUT for what a workload sends to its node, FORWARD for
the rest.

Invariants:
  STA-1  A workload's packet whose source is not routed back to its interface is dropped
         before anything else looks at it, whatever the rp_filter sysctls are.
  STA-2  A packet between two workloads is judged by the sender's and the receiver's chain.
  STA-3  Traffic between addresses of pools is never masqueraded.
  STA-4  Neither router advertisements nor redirects of a workload reach anybody, nor does
         anything that it sends to the node's loopback or in nobody's name (`::`).
  STA-5  A packet for a service's address that nobody translated does not leave the node.
Tested in tests/felix/test_rules.py and, with packets, tests/felix/test_forwarding.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network

from felix.rules import names
from felix.rules.dispatch import dispatch_roots
from felix.rules.endpoints import Verdicts
from felix.rules.hosts import HostRules, verdicts_of
from felix.rules.model import (
    Accept,
    Action,
    Chain,
    Conntrack,
    Drop,
    Goto,
    Icmp,
    InInterface,
    IPNetwork,
    Jump,
    Mark,
    Marks,
    Net,
    OutInterface,
    Protocol,
    Return,
    ReversePathFails,
    Rule,
    Side,
    TableModel,
    clear_bits,
    is_clear,
    is_set,
    set_bits,
)
from felix.rules.nat import NatRules, nat_table
from felix.rules.tunnels import NO_TUNNELS, TunnelRules, incoming, outgoing, own_source, untracked

_NEIGHBOUR_DISCOVERY = (130, 131, 132, 133, 135, 136)
_ROUTER_ADVERTISEMENT, _REDIRECT = 134, 137
_UNSPECIFIED, _LOOPBACK = ip_network("::/128"), ip_network("127.0.0.0/8")
_HOST_ACCEPTED = "Host endpoint policy accepted packet."


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """What the rules take from felix's configuration."""

    prefixes: tuple[str, ...] = ("cali",)
    marks: Marks = field(default_factory=lambda: Marks.allocate(0xFFFF0000))
    verdicts: Verdicts = field(default_factory=lambda: Verdicts(Accept(), Drop()))
    mangle_allow: Action = field(default_factory=Accept)
    endpoint_to_host: Action = field(default_factory=Drop)
    append: bool = False
    nat: NatRules = field(default_factory=NatRules)
    hosts: HostRules = field(default_factory=HostRules)
    loop_prevention: Action | None = field(default_factory=Drop)

    def verdicts_of(self, table: str) -> Verdicts:
        """How policy lets pass and denies in a table."""
        return verdicts_of(table, self.verdicts, self.mangle_allow)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules of one family take from the datastore.

    `nat_outgoing`: whether a pool asks for NAT. `service_nets`: where services have addresses.
    `spoofing`: by interface, the networks whose addresses a workload may use as its source.
    `tunnels`: which are in use.
    """

    nat_outgoing: bool = False
    service_nets: tuple[IPNetwork, ...] = ()
    spoofing: tuple[tuple[str, tuple[IPNetwork, ...]], ...] = ()
    tunnels: TunnelRules = NO_TUNNELS


def tables(version: int, settings: RuleSettings, facts: Facts = Facts()) -> dict[str, TableModel]:
    """Every table of one family, without what endpoints and policies add."""
    return {
        "raw": _raw(version, settings, facts),
        "mangle": _mangle(settings),
        "nat": nat_table(
            version,
            settings.nat,
            facts.nat_outgoing,
            settings.append,
            own_source(facts.tunnels, settings.nat.random_fully),
        ),
        "filter": _filter(version, settings, facts),
    }


def _hooks(
    kernel_chains: tuple[str, ...], append: bool, **fixed: tuple[Rule, ...]
) -> tuple[dict[str, tuple[Rule, ...]], dict[str, tuple[Rule, ...]]]:
    jumps: dict[str, tuple[Rule, ...]] = {
        chain: (Rule(Jump(f"cali-{chain}")),) for chain in kernel_chains
    }
    if not append:
        return jumps, dict(fixed)
    return {}, {chain: rules + fixed.get(chain, ()) for chain, rules in jumps.items()}


def _raw(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    marks = settings.marks
    workload = marks.scratch0
    prerouting = [
        Rule(clear_bits(marks.all)),
        *untracked(facts.tunnels),
        *(Rule(set_bits(workload), (InInterface(f"{p}+"),)) for p in settings.prefixes),
        *_forged_advice(version, is_set(workload)),
        Rule(Jump("cali-rpf-skip"), (is_set(workload),)),
        # Always DROP: the raw table knows no REJECT.
        Rule(Drop(), (is_set(workload), ReversePathFails())),
        Rule(Jump(names.FROM_HOST_DISPATCH), (is_clear(workload),)),
        Rule(Accept(), (is_set(marks.accept),)),
        # Behind Calico's own, whose hashes cover what stands before them.
        *_loopback(version, is_set(workload)),
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
        Chain("cali-rpf-skip", tuple(_spoofing(version, facts))),
    )
    inserts, appends = _hooks(("PREROUTING", "OUTPUT"), settings.append)
    return TableModel("raw", chains, inserts, appends)


def _forged_advice(version: int, workload: Mark) -> list[Rule]:
    """What is not a workload's to say or to ask for, whatever the host's sysctls are (STA-4)."""
    if version == 4:
        # IPv4 routers advertise in ICMP types that no host of ours reads; redirects are read.
        return []
    kinds = ((_ROUTER_ADVERTISEMENT, "advertisements"), (_REDIRECT, "redirects"))
    # The reverse path match lets the unspecified address pass; only ICMPv6 may have it (RFC 4862).
    nobody = (workload, Protocol(58, negated=True), Net(Side.SOURCE, _UNSPECIFIED))
    return [
        Rule(Drop(), nobody, ("Drop what workloads send in nobody's name",)),
        *(
            Rule(
                Drop(),
                (workload, Protocol(58), Icmp(6, kind)),
                (f"Drop router {what} that workloads send",),
            )
            for kind, what in kinds
        ),
    ]


def _loopback(version: int, workload: Mark) -> list[Rule]:
    """Workloads' links have route_localnet, for who translates to the loopback. Untranslated it
    would come to what the node serves itself alone (CVE-2020-8558); the kernel of IPv6 drops it."""
    if version == 6:
        return []
    said = ("Drop what workloads send to the node's loopback",)
    return [Rule(Drop(), (workload, Net(Side.DESTINATION, _LOOPBACK)), said)]


def _spoofing(version: int, facts: Facts) -> list[Rule]:
    return [
        Rule(Accept(), (InInterface(interface), Net(Side.SOURCE, net)))
        for interface, nets in facts.spoofing
        for net in nets
        if net.version == version
    ]


def _mangle(settings: RuleSettings) -> TableModel:
    marks, allow = settings.marks, settings.mangle_allow
    accepted = (is_set(marks.accept),)
    prerouting = (
        Rule(allow, (Conntrack(("RELATED", "ESTABLISHED")),)),
        Rule(allow, accepted),
        Rule(Jump(names.FROM_HOST_DISPATCH)),
        Rule(allow, accepted, (_HOST_ACCEPTED,)),
    )
    postrouting = (
        Rule(Return(), accepted),
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.TO_HOST_DISPATCH), (Conntrack(("DNAT",)),)),
        Rule(Return(), accepted, (_HOST_ACCEPTED,)),
    )
    chains = (
        Chain("cali-PREROUTING", prerouting),
        Chain("cali-POSTROUTING", postrouting),
    )
    inserts, appends = _hooks(("PREROUTING", "POSTROUTING"), settings.append)
    return TableModel("mangle", chains, inserts, appends)


def _filter(version: int, settings: RuleSettings, facts: Facts) -> TableModel:
    marks, allow = settings.marks, settings.verdicts.allow
    accepted = (is_set(marks.accept),)
    workloads = settings.prefixes
    deny = settings.verdicts.deny
    cali_input = (
        *incoming(version, facts.tunnels, allow, deny),
        *(Rule(Goto(names.WORKLOAD_TO_HOST), (InInterface(f"{p}+"),)) for p in workloads),
        Rule(allow, accepted),
        Rule(clear_bits(marks.all)),
        Rule(Jump(names.FROM_HOST_DISPATCH)),
        Rule(allow, accepted, (_HOST_ACCEPTED,)),
    )
    to_host: list[Rule] = []
    if version == 6:
        to_host += [Rule(allow, (Protocol(58), Icmp(6, kind))) for kind in _NEIGHBOUR_DISCOVERY]
    to_host += [
        Rule(Jump(names.FROM_WORKLOAD_DISPATCH)),
        Rule(settings.endpoint_to_host, comments=("Configured DefaultEndpointToHostAction",)),
    ]
    forward: list[Rule] = [
        Rule(clear_bits(marks.passed | marks.scratch0 | marks.scratch1)),
        Rule(Jump(names.FROM_FORWARD_DISPATCH), (is_clear(marks.accept),)),
    ]
    for p in workloads:
        forward.append(Rule(Jump(names.FROM_WORKLOAD_DISPATCH), (InInterface(f"{p}+"),)))
        forward.append(Rule(Jump(names.TO_WORKLOAD_DISPATCH), (OutInterface(f"{p}+"),)))
    forward += [Rule(Jump(names.TO_FORWARD_DISPATCH)), Rule(Jump("cali-cidr-block"))]
    output = (
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
        Chain(names.WORKLOAD_TO_HOST, tuple(to_host)),
        Chain("cali-cidr-block", tuple(_loop_prevention(version, settings, facts))),
        *dispatch_roots(marks, settings.verdicts.deny),
    ]
    end_of_forward = (
        Rule(allow, accepted, ("Policy explicitly accepted packet.",)),
        Rule(set_bits(marks.accept)),
    )
    inserts, appends = _hooks(
        ("INPUT", "FORWARD", "OUTPUT"), settings.append, FORWARD=end_of_forward
    )
    return TableModel("filter", tuple(chains), inserts, appends)


def _loop_prevention(version: int, settings: RuleSettings, facts: Facts) -> list[Rule]:
    """Nobody translated it, so it would go to the router, which would send it back (STA-5)."""
    if settings.loop_prevention is None:
        return []
    nets = sorted({net for net in facts.service_nets if net.version == version}, key=str)
    return [Rule(settings.loop_prevention, (Net(Side.DESTINATION, net),)) for net in nets]
