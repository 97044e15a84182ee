"""The nat table: outgoing translation of pods, and floating addresses of pods.

Pods of a pool with `natOutgoing` reach the world by the node's address. A floating address leads
to one pod, from wherever packets to it arrive at the node (`cali-fip-dnat`); what the pod sends to
its own comes back from there (`cali-fip-snat`), or the pod would not know the answer.

Source: docs/reference/dataplane.md#nat-table. Only traffic that leaves the pools is masqueraded:
the receiver of pod-to-pod traffic always sees the pod's own address. Our POSTROUTING hook is always
the last, after other masqueraders have cleared their own marks.
Tested in tests/felix/rules/test_rules.py and, with packets, tests/felix/kernel/test_forwarding.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from felix.rules import names
from felix.rules.model import (
    Action,
    Chain,
    Condition,
    DestinationNat,
    InSet,
    Jump,
    Masquerade,
    Net,
    OutInterface,
    Protocol,
    Return,
    Rule,
    Side,
    SourceNat,
    TableModel,
)

IPAddress = IPv4Address | IPv6Address
MASQUERADED_POOLS = "masq-ipam-pools"
ALL_POOLS = "network-ip-pools"
ALL_HOSTS = "all-hosts-net"
TCP, UDP = 6, 17


Floating = tuple[tuple[IPAddress, IPAddress], ...]
"""Pairs of a floating address and the pod's own, each floating address once."""


@dataclass(frozen=True, slots=True)
class NatRules:
    """Configuration of NAT outgoing: port range, fixed addresses, exclusions."""

    port_range: tuple[int, int] | None = None
    address_v4: str = ""
    address_v6: str = ""
    exclude_hosts: bool = False
    out_interface: str = ""
    random_fully: bool = True


def nat_table(
    version: int,
    nat: NatRules,
    nat_outgoing: bool,
    append: bool,
    last_rules: Iterable[Rule] = (),
    floating: Floating = (),
) -> TableModel:
    """The nat table of one family; `nat_outgoing` says whether a pool asks for it.

    `last_rules` stand behind all others where packets leave.
    """
    leaving = (Rule(Jump("cali-fip-snat")), Rule(Jump("cali-nat-outgoing")), *last_rules)
    chains = (
        Chain("cali-PREROUTING", (Rule(Jump("cali-fip-dnat")),)),
        Chain("cali-OUTPUT", (Rule(Jump("cali-fip-dnat")),)),
        Chain("cali-POSTROUTING", leaving),
        Chain("cali-fip-dnat", _to_pods(floating)),
        Chain("cali-fip-snat", _from_themselves(floating, nat)),
        Chain("cali-nat-outgoing", _outgoing(version, nat) if nat_outgoing else ()),
    )
    hooks = {chain: (Rule(Jump(f"cali-{chain}")),) for chain in ("PREROUTING", "OUTPUT")}
    last = {"POSTROUTING": (Rule(Jump("cali-POSTROUTING")),)}
    if append:
        return TableModel("nat", chains, {}, {**hooks, **last})
    return TableModel("nat", chains, hooks, last)


def bare_nat_table(
    version: int,
    nat: NatRules,
    nat_outgoing: bool,
    last_rules: tuple[Rule, ...],
    floating: Floating = (),
) -> TableModel:
    """The same without what holds nothing."""
    own = (Rule(Jump("cali-fip-snat")),) if floating else ()
    outgoing = (Rule(Jump("cali-nat-outgoing")),) if nat_outgoing else ()
    leaving = (*own, *outgoing, *last_rules)
    if not leaving:
        return TableModel("nat", ())
    chains = [Chain("cali-POSTROUTING", leaving)]
    hooks = {}
    if floating:
        for chain in ("PREROUTING", "OUTPUT"):
            chains.append(Chain(f"cali-{chain}", (Rule(Jump("cali-fip-dnat")),)))
            hooks[chain] = (Rule(Jump(f"cali-{chain}")),)
        chains.append(Chain("cali-fip-dnat", _to_pods(floating)))
        chains.append(Chain("cali-fip-snat", _from_themselves(floating, nat)))
    if nat_outgoing:
        chains.append(Chain("cali-nat-outgoing", _outgoing(version, nat)))
    last = {"POSTROUTING": (Rule(Jump("cali-POSTROUTING")),)}
    return TableModel("nat", tuple(chains), hooks, last)


def _to_pods(floating: Floating) -> tuple[Rule, ...]:
    ordered = sorted((str(outer), outer, str(own)) for outer, own in floating)
    return tuple(
        Rule(DestinationNat(own), (_is(Side.DESTINATION, outer),)) for _, outer, own in ordered
    )


def _from_themselves(floating: Floating, nat: NatRules) -> tuple[Rule, ...]:
    """Of several floating addresses of a pod the first by name answers for all."""
    first = {own: outer for outer, own in sorted(floating, key=str, reverse=True)}
    ordered = sorted(first.items(), key=lambda pair: str(pair[0]))
    return tuple(
        Rule(
            SourceNat(str(outer), None, nat.random_fully),
            (_is(Side.DESTINATION, own), _is(Side.SOURCE, own)),
        )
        for own, outer in ordered
    )


def _is(side: Side, address: IPAddress) -> Net:
    return Net(side, ip_network(address))


def _outgoing(version: int, nat: NatRules) -> tuple[Rule, ...]:
    leaves: list[Condition] = [
        InSet(Side.SOURCE, names.ip_set(MASQUERADED_POOLS, version)),
        InSet(Side.DESTINATION, names.ip_set(ALL_POOLS, version), negated=True),
    ]
    if nat.exclude_hosts:
        leaves.append(InSet(Side.DESTINATION, names.ip_set(ALL_HOSTS, version), negated=True))
    if nat.out_interface:
        leaves.append(OutInterface(nat.out_interface))
    rules = []
    if nat.port_range:
        for protocol in (TCP, UDP):
            match = (*leaves, Protocol(protocol))
            rules.append(Rule(_translate(version, nat, nat.port_range), match))
            rules.append(Rule(Return(), match))
    rules.append(Rule(_translate(version, nat, None), tuple(leaves)))
    return tuple(rules)


def _translate(version: int, nat: NatRules, ports: tuple[int, int] | None) -> Action:
    address = nat.address_v4 if version == 4 else nat.address_v6
    if address:
        return SourceNat(address, ports, nat.random_fully)
    return Masquerade(ports, nat.random_fully)
