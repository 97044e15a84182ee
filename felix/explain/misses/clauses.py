"""A rule's clauses, each held against a packet: those that do not match.

Clauses are read as `felix.calc.policy.rule_reader` reads them, one at a time. Where a side names
endpoints, all its clauses must match one endpoint or network set; the one that lacks least is told.

Invariants:
  MIS-1  A rule has no fault exactly if it matches the packet.
Tested in tests/felix/explain/misses/test_random.py, test_near.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from felix.calc.sets.items import read_networks
from felix.explain.flow import IPAddress, Packet
from felix.explain.misses import hints
from felix.explain.misses.faults import Fault
from felix.explain.misses.kinds import SidePorts, kind_faults
from felix.explain.misses.labelled import Directory, Labelled
from felix.explain.misses.terms import Term, lacking
from felix.explain.world import World
from libcalico.model import EntityRule, ResourceKey, Rule
from libcalico.model.resources.rules import ANY
from libcalico.policy_selectors import (
    NAMESPACE_PREFIX,
    SERVICE_ACCOUNT_PREFIX,
    entity_selector,
    namespaced,
    prefixed,
)
from libcalico.selectors.selectors import Node, Not, parse

_EXTENDS = {"namespaceSelector": NAMESPACE_PREFIX, "serviceAccounts": SERVICE_ACCOUNT_PREFIX}


class Part(NamedTuple):
    """A clause about labels: its field, as it is written, and what it means."""

    field: str
    text: str
    node: Node


class Clauses:
    """Holds rules against packets, in one world."""

    def __init__(self, world: World, directory: Directory) -> None:
        self._world, self._directory = world, directory

    def faults(
        self, key: ResourceKey, rule: Rule, packet: Packet, *, kinds: bool = True
    ) -> tuple[Fault, ...]:
        """The clauses of a rule that fail; without `kinds`, of its sides' labels and nets alone.

        Raises InvalidValue for a selector that cannot be read.
        """
        failing: list[Fault] = []
        if kinds:
            failing += kind_faults(key, rule, packet)
        for side in ("source", "destination"):
            entity: EntityRule = getattr(rule, side)
            if entity != ANY:
                failing += self._side(side, entity, rule, packet, key.namespace, kinds)
        return tuple(failing)

    def _side(
        self, side: str, entity: EntityRule, rule: Rule, packet: Packet, namespace: str,
        kinds: bool,
    ) -> Iterator[Fault]:  # fmt: skip
        address = packet.source if side == "source" else packet.destination
        behind = self._directory.behind(address)
        yield from self._nets(side, entity, address, behind)
        parts = parts_of(side, entity, namespace)
        named = SidePorts(side, entity, rule, packet) if kinds else None
        if parts:
            yield from _of_the_nearest(parts, named, behind, address)
        elif entity.notSelector:
            node = parse(entity.notSelector).root
            for one in behind:
                if node.matches(one.labels):
                    actual = f"it matches {one.title}"
                    yield Fault(f"{side}.notSelector", entity.notSelector, actual)
                    break
        if named is not None:
            if not parts and not any(named.holds(one) for one in behind or (None,)):
                yield named.fault(behind)
            holders = [one for one in behind if all(p.node.matches(one.labels) for p in parts)]
            yield from named.excluded(holders)
        if entity.services is not None and rule.action.lower() == "allow":
            name = f"{entity.services.namespace or namespace}/{entity.services.name}"
            yield Fault(
                f"{side}.services", name, "the datastore does not say who stands behind a service"
            )

    def _nets(
        self, side: str, entity: EntityRule, address: IPAddress, behind: tuple[Labelled, ...]
    ) -> Iterator[Fault]:
        if entity.nets:
            nets = read_networks(entity.nets)[0]
            if not any(address in net for net in nets):
                hint = hints.of_nets(self._world, side, address, nets, behind)
                yield Fault(f"{side}.nets", ", ".join(entity.nets), _is(side, address), hint=hint)
        excluded = read_networks(entity.notNets)[0]
        if excluded and not any(net.version == address.version for net in excluded):
            # So Calico reads it: such a rule is one of the families that its networks have.
            actual = f"the packet is IPv{address.version}"
            hint = (
                "a rule with networks of one family means no other:"
                f" name one of IPv{address.version}"
            )
            yield Fault(f"{side}.notNets", ", ".join(entity.notNets), actual, hint=hint)
        for text in entity.notNets:
            if any(address in net for net in read_networks([text])[0]):
                yield Fault(f"{side}.notNets", text, _is(side, address))


def parts_of(side: str, entity: EntityRule, namespace: str) -> list[Part]:
    """The clauses of a side that must hold of one endpoint; none where it names no endpoints."""
    parts: list[Part] = []
    if entity.selector:
        parts.append(Part(f"{side}.selector", entity.selector, parse(entity.selector).root))
    accounts = entity.serviceAccounts
    text = "" if accounts is None else entity_selector(EntityRule(serviceAccounts=accounts))
    if text:
        parts.append(Part(f"{side}.serviceAccounts", text, parse(text).root))
    if entity.namespaceSelector:
        written = entity.namespaceSelector
        scope = entity_selector(EntityRule(namespaceSelector=written))
        parts.append(Part(f"{side}.namespaceSelector", written, parse(scope).root))
    elif namespace and (parts or entity.notSelector):
        scope = namespaced("", namespace)
        parts.append(Part(f"{side}.namespaceSelector", "", parse(scope).root))
    if parts and entity.notSelector:
        node = Not(parse(entity.notSelector).root)
        parts.append(Part(f"{side}.notSelector", entity.notSelector, node))
    return parts


def _of_the_nearest(
    parts: list[Part], named: SidePorts | None, behind: tuple[Labelled, ...], address: IPAddress
) -> Iterator[Fault]:
    if not behind:
        part = parts[0]
        yield Fault(
            part.field, part.text or "the policy's own namespace",
            f"{address} is no endpoint's, and in no network set",
            hint="selectors match endpoints and network sets: name the network by nets",
        )  # fmt: skip
        return
    faults: list[list[Fault]] = []
    for one in behind:
        if (fault := _means_the_namespace(parts, one)) is not None:
            faults.append([fault])
            continue
        own = [fault for part in parts for fault in part_faults(part, one)]
        if named is not None and not named.holds(one):
            own.append(named.fault((one,)))
        faults.append(own)
    yield from min(faults, key=len)


def _means_the_namespace(parts: list[Part], one: Labelled) -> Fault | None:
    """The side's one selector is true of the namespace's labels, and of nothing else's."""
    written = [part for part in parts if part.text]
    selector = written[0]
    if len(written) > 1 or not selector.field.endswith(".selector"):
        return None
    terms = lacking(selector.node, one.labels)
    spelled = prefixed(selector.text, NAMESPACE_PREFIX).root
    if not terms or not any(term.label for term in terms) or not spelled.matches(one.labels):
        return None
    term = terms[0]
    hint = (
        f"{term.label} is a label of the namespace: write pcns.{term.label},"
        f" or namespaceSelector: {selector.text}"
    )
    if len(parts) > len(written):
        hint = (
            f"{term.label} is a label of the namespace (pcns.{term.label} to a selector):"
            f" write namespaceSelector: {selector.text}"
        )
    actual = actual_of(term, selector.field, one)
    return Fault(selector.field, selector.text, actual, term.label, hint)


def part_faults(part: Part, one: Labelled) -> Iterator[Fault]:
    """What an endpoint lacks for a clause about labels."""
    terms = lacking(part.node, one.labels)
    if terms and not part.text:
        namespace = str(getattr(part.node, "value", ""))
        clause = f"absent: so selectors here mean namespace {namespace} alone"
        yield Fault(part.field, clause, f"{one.title} is elsewhere", hint=hints.of_namespace(one))
        return
    for term in terms:
        alone = len(terms) == 1 and term.node == part.node
        text = part.text if alone else term.text
        hint = hints.of_term(term, part.field, one)
        yield Fault(part.field, text, actual_of(term, part.field, one), term.label, hint)


def actual_of(term: Term, field: str, one: Labelled) -> str:
    """What is there instead of what a term wants."""
    label, holder = term.label, one.title
    if not label:
        return f"{holder} does not match"
    prefix = _EXTENDS.get(field.partition(".")[2], "")
    if prefix and label.startswith(prefix):
        kind = "namespace" if prefix == NAMESPACE_PREFIX else "service account"
        holder = f"the {kind} of {one.title}"
    else:
        prefix = ""
    value = one.labels.get(label)
    name = label.removeprefix(prefix)
    return f"{holder} has no label {name}" if value is None else f"{holder} has {name}={value}"


def _is(side: str, address: IPAddress) -> str:
    return f"the {side} is {address}"
