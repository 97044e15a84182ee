"""What of one resolved rule can be said in one family's rules, and how
(docs/reference/dataplane.md#policy-chains).

First the rule is fitted to the family: another version's rule or networks of the other family
only mean nothing here. Then what iptables has no words for is taken out, which never widens
access (POL-1): an allow or log rule goes as a whole, a deny rule applies without the part, and a
pass rule becomes such a deny rule, for without it a later rule could allow what it matched.
At last it is split into a match and into blocks (`felix.rules.blocks`).

Invariants:
  FRG-1  A rule whose networks of one side are all of the other family is no rule of this family.
  FRG-2  What is left out never lets a packet be accepted that the whole rule would not let.
Tested in tests/felix/rules/test_policy_truth.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from felix.calc.policy_model import EntityMatch, IPNetwork, ResolvedRule, Verb
from felix.rules import names
from felix.rules.blocks import Alternative, Block
from felix.rules.model import Condition, Icmp, InSet, Net, Ports, Protocol, Side

MOST_PORTS = 15
"""Slots of one multiport match; a range takes two."""
MOST_NEGATED = 16
"""Negated matches on ports in one rule: iptables-restore takes 254 words a line."""

T = TypeVar("T", EntityMatch, ResolvedRule)
ICMP, TCP, UDP, DCCP, ICMPV6, SCTP, UDPLITE = 1, 6, 17, 33, 58, 132, 136
_WITH_PORTS = frozenset({TCP, UDP, DCCP, SCTP, UDPLITE})
_ICMP_OF = {4: ICMP, 6: ICMPV6}


@dataclass(frozen=True, slots=True)
class Fragments:
    """A rule's match, the choices that need blocks, and what then happens."""

    verb: Verb
    match: tuple[Condition, ...]
    blocks: tuple[Block, ...]


def fragments(
    rule: ResolvedRule, version: int, unusable: frozenset[str] = frozenset()
) -> Fragments | None:
    """The rule in the words of one family; None where it is no rule of it.

    `unusable`: sets that the kernel does not hold as wanted.
    """
    fitted = _fit(rule, version)
    if fitted is None:
        return None
    reduced = _reduce(fitted, unusable)
    if reduced != fitted or rule.unenforced:
        if rule.verb in (Verb.ALLOW, Verb.LOG):
            return None
        reduced = replace(reduced, verb=Verb.DENY)
    return _split(reduced, version)


# -- the family ----------------------------------------------------------------------------------


def _fit(rule: ResolvedRule, version: int) -> ResolvedRule | None:
    if rule.version not in (None, version):
        return None
    source, destination = _fit_side(rule.source, version), _fit_side(rule.destination, version)
    if source is None or destination is None:
        return None
    own = _ICMP_OF[version]
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


def _reduce(rule: ResolvedRule, unusable: frozenset[str]) -> ResolvedRule:
    """The rule without what has no words; equal to the rule where all has."""
    # iptables reads protocol 0 as "all", and refuses its negation.
    protocol = rule.protocol or None
    not_protocol = rule.not_protocol or None
    icmp = rule.icmp if _sayable(rule.icmp) else None
    not_icmp = rule.not_icmp if _sayable(rule.not_icmp) else None
    has_ports = protocol in _WITH_PORTS
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


# -- match and blocks ----------------------------------------------------------------------------


def _split(rule: ResolvedRule, version: int) -> Fragments:
    sides = ((Side.SOURCE, rule.source), (Side.DESTINATION, rule.destination))
    match: list[Condition] = []
    if rule.protocol is not None:
        match.append(Protocol(rule.protocol, named=True))
    for side, entity in sides:
        match += _positive(side, entity, rule, version)
    if rule.icmp is not None:
        match.append(_icmp(version, rule.icmp))
    if rule.not_protocol is not None:
        match.append(Protocol(rule.not_protocol, negated=True, named=True))
    crowded = sum(len(_negated_ports(s, e, version)) for s, e in sides) > MOST_NEGATED
    for side, entity in sides:
        match += _negative(side, entity, version, crowded=crowded)
    if rule.not_icmp is not None and rule.protocol is not None:
        match.append(_icmp(version, rule.not_icmp, negated=True))
    return Fragments(rule.verb, tuple(match), tuple(_blocks(sides, rule, version, crowded)))


def _positive(
    side: Side, entity: EntityMatch, rule: ResolvedRule, version: int
) -> Iterator[Condition]:
    if len(entity.nets) == 1:
        yield Net(side, entity.nets[0])
    for each in entity.sets:
        yield InSet(side, names.ip_set(each, version))
    for each in entity.services:
        yield InSet(side, names.ip_set(each, version), ports=True)
    choices = _port_choices(side, entity, rule, version)
    if len(choices) == 1:
        yield choices[0][-1]


def _negative(
    side: Side, entity: EntityMatch, version: int, *, crowded: bool
) -> Iterator[Condition]:
    if len(entity.not_nets) == 1 and len(entity.nets) != 1:
        yield Net(side, entity.not_nets[0], negated=True)
    for each in entity.not_sets:
        yield InSet(side, names.ip_set(each, version), negated=True)
    if not crowded:
        for port in _negated_ports(side, entity, version):
            yield replace(port, negated=True)


def _negated_ports(side: Side, entity: EntityMatch, version: int) -> list[Ports | InSet]:
    """What none of a side's ports may be."""
    conditions: list[Ports | InSet] = [Ports(side, part) for part in multiports(entity.not_ports)]
    conditions += [
        InSet(side, names.ip_set(each, version), ports=True) for each in entity.not_named_ports
    ]
    return conditions


def _blocks(
    sides: Iterable[tuple[Side, EntityMatch]], rule: ResolvedRule, version: int, crowded: bool
) -> Iterator[Block]:
    sides = tuple(sides)
    for side, entity in sides:
        choices = _port_choices(side, entity, rule, version)
        if len(choices) > 1:
            yield Block(tuple(choices))
    for side, entity in sides:
        if len(entity.nets) > 1:
            yield Block(tuple((Net(side, net),) for net in entity.nets))
    for side, entity in sides:
        # One rule has room for one match of a side's address.
        if len(entity.not_nets) > 1 or (entity.not_nets and len(entity.nets) == 1):
            yield Block(tuple((Net(side, net),) for net in entity.not_nets), negated=True)
    for side, entity in sides if crowded else ():
        # Room for some in one rule, as Calico writes it; for any number in a block.
        protocol = () if rule.protocol is None else (Protocol(rule.protocol, named=True),)
        ports = _negated_ports(side, entity, version)
        if ports:
            yield Block(tuple((*protocol, port) for port in ports), negated=True)
    if rule.not_icmp is not None and rule.protocol is None:
        # The match on messages wants the protocol beside it, so it cannot be negated alone.
        message = (Protocol(_ICMP_OF[version], named=True), _icmp(version, rule.not_icmp))
        yield Block((message,), negated=True)


def _port_choices(
    side: Side, entity: EntityMatch, rule: ResolvedRule, version: int
) -> list[Alternative]:
    """Each part of the ports, and each named port, as it stands in a block."""
    choices: list[Alternative] = []
    if entity.ports:
        assert rule.protocol is not None
        protocol = Protocol(rule.protocol, named=True)
        choices += [(protocol, Ports(side, part)) for part in multiports(entity.ports)]
    choices += [
        (InSet(side, names.ip_set(each, version), ports=True),) for each in entity.named_ports
    ]
    return choices


def multiports(ranges: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """Ranges in parts that each fit one multiport match."""
    parts: list[tuple[tuple[int, int], ...]] = []
    part: list[tuple[int, int]] = []
    room = MOST_PORTS
    for first, last in ranges:
        slots = 1 if first == last else 2
        if slots > room:
            parts.append(tuple(part))
            part, room = [], MOST_PORTS
        part.append((first, last))
        room -= slots
    if part:
        parts.append(tuple(part))
    return parts


def _icmp(version: int, icmp: tuple[int | None, int | None], negated: bool = False) -> Icmp:
    kind, code = icmp
    assert kind is not None
    return Icmp(version, kind, code, negated)
