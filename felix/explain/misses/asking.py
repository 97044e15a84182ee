"""Which policies a station asks, and how one policy's rules read there.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from felix.calc.policy.facts import PolicyFacts
from felix.calc.policy.rules import resolve
from felix.calc.policy_model import TierView
from felix.explain.flow import Packet
from felix.explain.misses.clauses import Clauses, Part, part_faults
from felix.explain.misses.faults import Fault
from felix.explain.misses.labelled import Labelled
from felix.explain.stations import FORWARD, Station
from felix.explain.walk import By
from felix.explain.written import written
from libcalico.errors import InvalidValue
from libcalico.model import GlobalNetworkPolicy, ResourceKey, Rule
from libcalico.model.resources.rules import ANY
from libcalico.policy_selectors import NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX, prefixed
from libcalico.selectors.selectors import parse


@dataclass(frozen=True, slots=True)
class Asked:
    """The order of a station's policies: those up to the decider, and those behind it."""

    station: Station
    before: frozenset[ResourceKey]
    behind: dict[ResourceKey, str] = field(default_factory=dict)

    def decided_by(self, key: ResourceKey) -> bool:
        """Whether this policy decided."""
        return self.station.ruling.policy == key

    def later(self, about: Reading, number: int) -> tuple[Fault, ...]:
        """That a rule is asked too late: a deny comes first."""
        ruling = self.station.ruling
        if self.decided_by(about.key):
            if not about.after(number):
                return ()
            place = f"stands behind {about.direction}[{about.deciding}]"
            hint = "move it before that rule"
            return (Fault("order", place, "the first rule that matches decides", hint=hint),)
        tier = self.behind.get(about.key)
        if tier is None:
            return ()
        if ruling.by is By.TIER_END:
            return (
                Fault(
                    "tier", tier, f"tier {ruling.tier} comes first, and denies at its end",
                    hint=f"pass the packet in tier {ruling.tier}, by a rule with action Pass",
                ),
            )  # fmt: skip
        order = getattr(about.stored.spec, "order", None)
        name = "" if ruling.policy is None else ruling.policy.name
        return (
            Fault(
                "order", "last" if order is None else f"{order:g}",
                f"{name} of tier {ruling.tier} comes first, and denies",
                hint=f"give it a lower order than {name}, or narrow that policy's rule",
            ),
        )  # fmt: skip


def asked_at(tiers: Sequence[TierView], station: Station) -> Asked:
    """The policies of a station by their order."""
    ruling = station.ruling
    before: set[ResourceKey] = set()
    behind: dict[ResourceKey, str] = {}
    decided = False
    for tier in tiers:
        for key in tier.ingress if station.ingress else tier.egress:
            if decided:
                behind[key] = tier.name
            else:
                before.add(key)
            decided = decided or (ruling.by is By.RULE and key == ruling.policy)
        decided = decided or (ruling.by is By.TIER_END and tier.name == ruling.tier)
    return Asked(station, frozenset(before), behind)


def faults_of_policy(
    key: ResourceKey, stored: Any, facts: PolicyFacts, station: Station, endpoint: Labelled
) -> list[Fault] | None:
    """Why a policy does not judge here; empty: it does. None where that is no near miss."""
    spec = stored.spec
    faults: list[Fault] = []
    if not facts.selector.root.matches(endpoint.labels):
        if key.namespace and key.namespace != endpoint.key.namespace:
            if endpoint.key.kind != "WorkloadEndpoint" or _selects_all(spec.selector):
                return None
            faults.append(
                Fault(
                    "metadata.namespace", key.namespace, f"{endpoint.title} is elsewhere",
                    hint="a NetworkPolicy selects in its own namespace alone: move it,"
                    " or make a GlobalNetworkPolicy",
                )
            )  # fmt: skip
        for part in _parts(spec):
            faults += part_faults(part, endpoint)
        if not faults:
            return None
    if not (facts.ingress if station.ingress else facts.egress):
        lacks = "Ingress" if station.ingress else "Egress"
        types = ", ".join(spec.types)
        faults.append(
            Fault(
                "spec.types", types, f"this is {station.direction} of {station.end.title}",
                hint=f"add {lacks} to types: without it the policy says nothing of"
                f" {station.direction}",
            )
        )  # fmt: skip
    through = station.stage == FORWARD and not facts.forward
    if through and isinstance(stored, GlobalNetworkPolicy):
        faults.append(
            Fault(
                "spec.applyOnForward", "false", "the packet passes through the host",
                hint="set applyOnForward: true, and the policy judges what is forwarded, too",
            )
        )  # fmt: skip
    return faults


def unreadable_rule(key: ResourceKey, stored: Any) -> Fault | None:
    """The clause for which a policy is closed, None where its rules can be read."""
    for direction in ("ingress", "egress"):
        try:
            resolve(getattr(stored.spec, direction), f"spec.{direction}", key.namespace)
        except InvalidValue as error:
            ports = error.field.rpartition(".")[2] in ("ports", "notPorts")
            hint = "say which: add protocol: TCP, UDP or SCTP" if ports else ""
            return Fault(
                error.field, str(error.value), f"{error.rule}: until then the policy is closed",
                hint=hint,
            )  # fmt: skip
    return None


def _selects_all(selector: str) -> bool:
    return not selector or parse(selector).text == "all()"


def _parts(spec: Any) -> Iterator[Part]:
    try:
        if spec.selector:
            yield Part("spec.selector", spec.selector, parse(spec.selector).root)
        for name, prefix in (
            ("namespaceSelector", NAMESPACE_PREFIX),
            ("serviceAccountSelector", SERVICE_ACCOUNT_PREFIX),
        ):
            text = getattr(spec, name, "")
            if text:
                yield Part(f"spec.{name}", text, prefixed(text, prefix).root)
    except InvalidValue:
        return


@dataclass(frozen=True)
class Reading:
    """One policy's rules, held against a packet at a station."""

    clauses: Clauses
    key: ResourceKey
    stored: Any
    packet: Packet
    station: Station
    kinds: bool

    @property
    def direction(self) -> str:
        """The field whose rules judge here."""
        return self.station.direction

    @cached_property
    def deciding(self) -> int | None:
        """The number of the written rule of this policy that decided, if one did."""
        ruling = self.station.ruling
        if ruling.policy != self.key or ruling.rule is None:
            return None
        origin = written(self.key, self.stored, ruling.rule, ingress=self.station.ingress)
        return None if origin is None else origin[0]

    def after(self, number: int) -> bool:
        """Whether a rule stands behind the one that decided."""
        deciding = self.deciding
        return deciding is not None and number > deciding

    def rules(self, actions: Set[str]) -> Iterator[tuple[int, Rule, tuple[Fault, ...]]]:
        """Rules of some actions with their faults; those in the wrong direction among them."""
        spec = self.stored.spec
        here, there = spec.ingress, spec.egress
        if not self.station.ingress:
            here, there = there, here
        for number, rule in enumerate(here):
            if rule.action.lower() in actions:
                yield number, rule, self._faults(rule)
        for number, rule in enumerate(there):
            if rule.action.lower() in actions and (fault := self._elsewhere(number, rule)):
                yield number, rule, (fault,)

    def _faults(self, rule: Rule) -> tuple[Fault, ...]:
        faults = self._of(rule)
        sides = [fault for fault in faults if fault.field.startswith(("source.", "destination."))]
        if sides and not self._of(swapped(rule)):
            return (_swapped(rule),)
        return faults

    def _of(self, rule: Rule) -> tuple[Fault, ...]:
        return self.clauses.faults(self.key, rule, self.packet, kinds=self.kinds)

    def _elsewhere(self, number: int, rule: Rule) -> Fault | None:
        """The rule stands in the other direction's list, and would match here."""
        other = "egress" if self.station.ingress else "ingress"
        peer = rule.source if self.station.ingress else rule.destination
        if peer == ANY or self._of(rule):
            return None
        return Fault(
            f"spec.{other}", f"{other}[{number}]",
            f"this is {self.direction} of {self.station.end.title}",
            hint=f"the rule matches the packet, but stands in {other}: move it to {self.direction}",
        )  # fmt: skip


def swapped(rule: Rule) -> Rule:
    """The rule with its sides' peers exchanged; ports stay where they are."""
    source, destination = (
        replace(mine, ports=own.ports, notPorts=own.notPorts)
        for mine, own in ((rule.destination, rule.source), (rule.source, rule.destination))
    )
    return replace(rule, source=source, destination=destination)


def _swapped(rule: Rule) -> Fault:
    side = "destination" if rule.destination.selector or rule.destination.nets else "source"
    other = "source" if side == "destination" else "destination"
    entity = getattr(rule, side)
    text = entity.selector or entity.namespaceSelector or ", ".join(entity.nets)
    return Fault(
        side, text, f"it is the {other} of the packet that is so",
        hint=f"source and destination are exchanged: say it of the {other}",
    )  # fmt: skip
