"""Services of kube-proxy in ipvs mode: policy for packets that never meet FORWARD.

There the addresses of services are the node's own, on the link kube-ipvs0. A packet to one comes
to INPUT, where IPVS takes it behind our rules, gives it the address of a backend and sends it on
through OUTPUT: the chain for what the node says itself, which may reach all its own pods. So
while that link is there, what comes to INPUT is marked, and what comes to OUTPUT with the mark is
judged as in FORWARD. It has no incoming interface any more: a sender is known by its source,
which it cannot forge (STC-1).

    INPUT   a new connection: mark it; a pod's to a service's address is judged in OUTPUT alone
    OUTPUT  with the mark: the sender's chain, by address; the receiver's, by interface

Node ports are addresses of the node: what a pod sends to those of its own node is judged as a
packet to its node too, and so is what comes to an interface with a host endpoint.

Not judged is what a pod sends to a service's address and the node itself then takes: IPVS gives it
on within INPUT, at a priority (98, 99) behind that of the filter table; of iptables only `nat`
comes later (100), which drops nothing. That is so where the chosen backend is an address of the
node (a pod on its network), and for a port of such an address that is no service's
(docs/policy.md, "Where its reach ends").

Invariants:
  IPV-1  What IPVS sends on through OUTPUT, to a workload or from one, is judged by the sender's and
         the receiver's chain (STC-2).
  IPV-2  A workload without an endpoint reaches only its node through a service (DSP-1).
  IPV-3  Without kube-ipvs0 no rule differs.
  IPV-4  Without mark bits for it nothing that IPVS may have sent reaches a workload, or leaves one.
Tested in tests/felix/rules/test_ipvs.py and, with packets and an IPVS, tests/uml/test_ipvs.py.
"""

from __future__ import annotations

from felix.rules import names
from felix.rules.guards import ICMPV6, NEIGHBOUR_DISCOVERY
from felix.rules.inputs import RuleSettings, Senders
from felix.rules.model import (
    Chain,
    Conntrack,
    Goto,
    Icmp,
    InInterface,
    InSet,
    Jump,
    Net,
    OutInterface,
    Protocol,
    Return,
    Rule,
    Side,
    clear_bits,
    is_clear,
    is_set,
    set_bits,
)

LINK = "kube-ipvs0"
SERVICES = "ipvs-services"
"""The set of the addresses of that link."""
_IN, _OUT, _FROM = "cali-ipvs-in", "cali-ipvs-out", "cali-ipvs-from"


def incoming(version: int, settings: RuleSettings, senders: Senders | None) -> list[Rule]:
    """What stands in cali-INPUT before a workload's packets go to the chain of its node."""
    if senders is None:
        return []
    services = InSet(Side.DESTINATION, names.ip_set(SERVICES, version))
    ours = [InInterface(f"{prefix}+") for prefix in settings.prefixes]
    return [Rule(Jump(_IN)), *(Rule(Return(), (one, services)) for one in ours)]


def outgoing(settings: RuleSettings, senders: Senders | None) -> list[Rule]:
    """What stands first in cali-OUTPUT, before what an accept mark lets through."""
    if senders is None:
        return []
    if not settings.marks.served:
        return [Rule(Goto(_OUT), (OutInterface(f"{prefix}+"),)) for prefix in settings.prefixes]
    return [Rule(Goto(_OUT), (is_set(settings.marks.served),))]


def _unmarked(version: int, settings: RuleSettings, ours: list[InInterface]) -> list[Chain]:
    """The rules where the mark mask has no bit for packets of IPVS, so policy cannot judge them.

    New connections of workloads are dropped, to services and, as it may have a node port, to the
    node itself. New connections from the node to workloads are dropped too: IPVS may have sent
    them. Replies and neighbour discovery pass, for IPVS does not handle them.
    """
    deny = settings.verdicts.deny
    services = InSet(Side.DESTINATION, names.ip_set(SERVICES, version))
    kinds = NEIGHBOUR_DISCOVERY if version == 6 else ()
    why = ("The mark mask has no bits for kube-proxy in ipvs mode",)
    passing = (
        Rule(Return(), (Conntrack(("RELATED", "ESTABLISHED")),)),
        *(Rule(Return(), (Protocol(ICMPV6), Icmp(6, kind))) for kind in kinds),
    )
    into = (
        *(Rule(deny, (one, services), why) for one in ours),
        *passing,
        *(Rule(deny, (one,), why) for one in ours),
    )
    return [Chain(_IN, into), Chain(_OUT, (*passing, Rule(deny, comments=why)))]


def chains(
    version: int, settings: RuleSettings, senders: Senders | None, *, hosts: bool
) -> list[Chain]:
    """The chains that those rules lead to. `hosts`: host endpoints may have policy."""
    if senders is None:
        return []
    marks, verdicts = settings.marks, settings.verdicts
    ours = [InInterface(f"{prefix}+") for prefix in settings.prefixes]
    if not marks.served:
        return _unmarked(version, settings, ours)
    into = [
        Rule(clear_bits(marks.served | marks.sender)),
        Rule(Return(), (Conntrack(("RELATED", "ESTABLISHED")),)),
        Rule(set_bits(marks.served)),
        *(Rule(set_bits(marks.sender), (one,)) for one in ours),
    ]
    out = [
        Rule(clear_bits(marks.all | marks.served)),
        Rule(Jump(_FROM)),
        Rule(verdicts.deny, (is_set(marks.sender), is_clear(marks.accept)), ("Unknown sender",)),
        *(
            Rule(Jump(names.TO_WORKLOAD_DISPATCH), (OutInterface(f"{prefix}+"),))
            for prefix in settings.prefixes
        ),
        *([Rule(Jump(names.TO_FORWARD_DISPATCH))] if hosts else []),
        Rule(verdicts.allow, (is_set(marks.accept),), ("Policy explicitly accepted packet.",)),
    ]
    by_address = [
        Rule(Goto(names.endpoint_chain(names.FROM_WORKLOAD, interface)), (Net(Side.SOURCE, net),))
        for interface, networks in senders.networks
        for net in networks
    ]
    return [Chain(_IN, tuple(into)), Chain(_OUT, tuple(out)), Chain(_FROM, tuple(by_address))]
