"""A resolved rule fitted to one family, and reduced to what iptables can match.

Tested in tests/felix/rules/test_policy_truth.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from felix.calc.policy_model import EntityMatch, IPNetwork, ResolvedRule

T = TypeVar("T", EntityMatch, ResolvedRule)
ICMP, TCP, UDP, DCCP, ICMPV6, SCTP, UDPLITE = 1, 6, 17, 33, 58, 132, 136
WITH_PORTS = frozenset({TCP, UDP, DCCP, SCTP, UDPLITE})
ICMP_OF = {4: ICMP, 6: ICMPV6}


# -- the family ----------------------------------------------------------------------------------


def fit(rule: ResolvedRule, version: int) -> ResolvedRule | None:
    """The rule as one of this family; None where it is no rule of it (FRG-1)."""
    if rule.version not in (None, version):
        return None
    source, destination = _fit_side(rule.source, version), _fit_side(rule.destination, version)
    if source is None or destination is None:
        return None
    own = ICMP_OF[version]
    protocol, not_icmp = rule.protocol, rule.not_icmp
    if rule.icmp is not None:
        protocol = own if protocol is None else protocol
        if protocol != own:
            return None
    if protocol not in (None, own):
        # A packet of another protocol is no such message anyway, nor is one of the other family's
        # ICMP: an IPv4 packet of protocol 58 has no type that IPv4's ICMP knows.
        not_icmp = None
    if protocol is not None and protocol == rule.not_protocol:
        return None
    return _with(
        rule,
        protocol=protocol,
        # Only one protocol match fits a rule; one that names another protocol says it all.
        not_protocol=rule.not_protocol if protocol is None else None,
        not_icmp=not_icmp,
        source=source,
        destination=destination,
    )


def _with(one: T, **fields: Any) -> T:
    """The same with these fields; the same object where that changes nothing, as mostly."""
    for name, value in fields.items():
        if getattr(one, name) != value:
            return replace(one, **fields)
    return one


def _fit_side(side: EntityMatch, version: int) -> EntityMatch | None:
    if not side.nets and not side.not_nets:
        return side
    nets = tuple(net for net in side.nets if net.version == version)
    not_nets = tuple(net for net in side.not_nets if net.version == version)
    if (side.nets and not nets) or (side.not_nets and not not_nets):
        return None
    if any(net.prefixlen == 0 for net in not_nets):
        return None
    return replace(side, nets=_once(nets), not_nets=_once(not_nets))


def _once(nets: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    return tuple(dict.fromkeys(nets))


# -- what cannot be said -------------------------------------------------------------------------


def reduce(rule: ResolvedRule, unusable: frozenset[str]) -> ResolvedRule:
    """The rule without what has no words; equal to the rule where all has."""
    # iptables reads protocol 0 as "all", and refuses its negation.
    protocol = rule.protocol or None
    not_protocol = rule.not_protocol or None
    icmp = rule.icmp if _sayable(rule.icmp) else None
    not_icmp = rule.not_icmp if _sayable(rule.not_icmp) else None
    has_ports = protocol in WITH_PORTS
    return _with(
        rule,
        protocol=protocol,
        not_protocol=not_protocol,
        icmp=icmp,
        not_icmp=not_icmp,
        source=_reduce_side(rule.source, has_ports, unusable),
        destination=_reduce_side(rule.destination, has_ports, unusable),
    )


def _sayable(icmp: tuple[int | None, int | None] | None) -> bool:
    # iptables reads type 255 as "any".
    return icmp is None or (icmp[0] is not None and icmp[0] != 255)


def _reduce_side(side: EntityMatch, has_ports: bool, unusable: frozenset[str]) -> EntityMatch:
    lost = unusable.intersection
    drop_ports = bool((side.ports and not has_ports) or lost(side.named_ports))
    return _with(
        side,
        sets=_without(side.sets, unusable),
        not_sets=_without(side.not_sets, unusable),
        services=_without(side.services, unusable),
        # Alternatives of each other: a choice that lacks one would match less.
        ports=() if drop_ports else side.ports,
        named_ports=() if drop_ports else side.named_ports,
        not_ports=side.not_ports if has_ports else (),
        not_named_ports=_without(side.not_named_ports, unusable),
    )


def _without(sets: tuple[str, ...], unusable: frozenset[str]) -> tuple[str, ...]:
    return tuple(each for each in sets if each not in unusable) if unusable else sets
