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

from felix.calc.policy_model import EntityMatch, ResolvedRule, Verb
from felix.rules import names
from felix.rules.blocks import Alternative, Block
from felix.rules.family_fit import ICMP_OF, fit, reduce
from felix.rules.model import Condition, Icmp, InSet, Net, Ports, Protocol, Side

MOST_PORTS = 15
"""Slots of one multiport match; a range takes two."""
MOST_NEGATED = 16
"""Negated matches on ports in one rule: iptables-restore takes 254 words a line."""


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
    fitted = fit(rule, version)
    if fitted is None:
        return None
    reduced = reduce(fitted, unusable)
    if reduced != fitted or rule.unenforced:
        if rule.verb in (Verb.ALLOW, Verb.LOG):
            return None
        reduced = replace(reduced, verb=Verb.DENY)
    return _split(reduced, version)


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
        message = (Protocol(ICMP_OF[version], named=True), _icmp(version, rule.not_icmp))
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
