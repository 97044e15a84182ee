"""View 3, policy: which groups of pods may reach which, as the explain engine decides it.

Pods that policy cannot tell apart are asked about once (`felix.explain.populace`), so a matrix of
10,000 pods is one of a few hundred classes. Groups are namespaces, or the values of a label. The
work is bounded in time: what was not asked says so.

Tested in tests/web/test_matrix.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calicoctl.diags.secret_text import without_secrets
from felix.calc.endpoints import from_resource
from felix.calc.labels import workload_labels
from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, ResolvedRule
from felix.explain.ends import End, What
from felix.explain.flow import Kind, Packet, kind_of, read_protocol
from felix.explain.matching import Matcher
from felix.explain.plan_labels import member_of, relevant_labels
from felix.explain.populace import Class, Member, classes_of
from felix.explain.report import Judgement, decided_by, rule_text
from felix.explain.stations import NORMAL, Station
from felix.explain.walk import Ruling, walk
from felix.explain.world import World, calculate
from felix.explain.written import written
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey

NAMESPACE = "namespace"
WITHOUT = "(without)"
OUTSIDE = "(outside)"
MOST_GROUPS = 60
"""Groups that a matrix shows, those with the most pods; the others are counted."""
MOST_DECISIONS = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """Pairs of pods, one of each group. `total` 0: there is no pair to ask about."""

    allowed: int
    total: int

    @property
    def sign(self) -> str:
        """All, some, none, or nothing to ask."""
        if not self.total:
            return "–"
        return "●" if self.allowed == self.total else "◐" if self.allowed else "○"

    @property
    def word(self) -> str:
        """The same in words."""
        if not self.total:
            return "no pair"
        if self.allowed == self.total:
            return "all allowed"
        return f"{self.allowed} of {self.total} pairs allowed" if self.allowed else "all denied"


@dataclass(frozen=True, slots=True)
class Decision:
    """Pairs that fare alike, and the rule that decides."""

    allowed: bool
    source: str
    destination: str
    pairs: int
    decided: str
    rule: str


@dataclass(frozen=True)
class Matrix:
    """`cells` by (source group, destination group). `left`: pairs of classes not asked."""

    kind: str
    version: int
    groups: tuple[str, ...]
    counts: dict[str, int]
    cells: dict[tuple[str, str], Cell]
    decisions: dict[tuple[str, str], tuple[Decision, ...]] = field(default_factory=dict)
    hidden: int = 0
    left: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a matrix is about: the axis (NAMESPACE or a label), and the packets."""

    by: str = NAMESPACE
    protocol: str = "tcp"
    port: int | None = 80
    version: int = 4

    def kind(self) -> Kind:
        """The packets. Raises InvalidValue naming the field."""
        if self.version not in (4, 6):
            raise InvalidValue("IP version", self.version, "4 or 6")
        return kind_of(read_protocol(self.protocol), self.version, port=self.port)


def labels_of(world: World) -> list[str]:
    """The axes that a matrix may have: the namespace, and each label of a pod."""
    names = {
        name for key, value in world.of("WorkloadEndpoint") for name in _own(world, key, value)
    }
    return [NAMESPACE, *sorted(names)]


def matrix(world: World, asked: Asked, late: Callable[[], bool] = lambda: False) -> Matrix:
    """The matrix; when `late` returns true it has what is known by then. Raises InvalidValue."""
    kind = asked.kind()
    keys, notes = _served(world)
    engine = calculate(world, keys).engine
    relevant = relevant_labels([world])
    groups = {key: _group(world, key, asked.by) for key in keys}
    members = [_in_group(member_of(world, key, relevant), groups[key]) for key in sorted(keys)]
    asker = _Asker(world, engine, kind, asked.version)
    population, whole = classes_of(members, (engine, engine), _rules(engine))
    if not whole:
        notes.append("too many networks are named in rules: not all outside addresses are asked")
    return asker.all(_split(population), notes, late)


def _served(world: World) -> tuple[list[ResourceKey], list[str]]:
    keys, refused = [], 0
    for key, value in world.of("WorkloadEndpoint"):
        try:
            from_resource(key, value)
        except InvalidValue:
            refused += 1
        else:
            keys.append(key)
    return keys, [f"{refused} endpoints cannot be served and are left out"] if refused else []


def _rules(engine: PolicyEngine) -> Iterable[ResolvedRule]:
    for policy in (*engine.policies.values(), *engine.profiles.values()):
        yield from policy.ingress
        yield from policy.egress


def _own(world: World, key: ResourceKey, value: Any) -> dict[str, str]:
    return world.with_inherited(workload_labels(key, value), value.spec.profiles)


def _group(world: World, key: ResourceKey, by: str) -> str:
    if by == NAMESPACE:
        return key.namespace
    return _own(world, key, world.objects[key]).get(by, WITHOUT)


def _in_group(member: Member, group: str) -> Member:
    return replace(member, labels=(("", group), *member.labels))


def _split(population: Sequence[Class]) -> list[tuple[str, Class]]:
    """The classes, each cut into the groups that its members are of."""
    parts: list[tuple[str, Class]] = []
    for one in population:
        if one.outside:
            parts.append((OUTSIDE, one))
            continue
        by_group: dict[str, list[Member]] = {}
        for member in one.members:
            by_group.setdefault(member.labels[0][1], []).append(member)
        for group, members in by_group.items():
            parts.append((group, Class(one.policies, one.holders, one.addresses, "", members)))
    return parts


class _Asker:
    """Asks the engine about pairs of classes; equal questions are asked once."""

    def __init__(self, world: World, engine: PolicyEngine, kind: Kind, version: int) -> None:
        self._world, self._engine, self._kind, self._version = world, engine, kind, version
        self._matcher = Matcher(engine)
        self._rulings: dict[object, Ruling] = {}
        self._texts: dict[tuple[int, bool], tuple[str, str]] = {}
        self._lists: dict[EndpointPolicy | None, int] = {}
        self._numbers: dict[int, int] = {}

    def all(
        self, parts: list[tuple[str, Class]], notes: list[str], late: Callable[[], bool]
    ) -> Matrix:
        """Every pair of parts."""
        counts: dict[str, int] = {}
        for group, one in parts:
            counts[group] = counts.get(group, 0) + len(one.members)
        ranked = sorted(counts, key=lambda name: (name == OUTSIDE, -counts[name], name))
        kept = {*ranked[:MOST_GROUPS], *({OUTSIDE} & set(ranked))}
        shown = [(group, one) for group, one in parts if group in kept]
        sums: dict[tuple[str, str], list[int]] = {}
        decisions: dict[tuple[str, str], dict[tuple[str, bool], Decision]] = {}
        left = 0
        for number, (source_group, source) in enumerate(shown):
            if late():
                left = (len(shown) - number) * len(shown)
                break
            for group, destination in shown:
                if source.outside and destination.outside:
                    continue
                pairs = _pairs(source, destination)
                if not pairs or None in (self._at(source), self._at(destination)):
                    continue
                allowed, by, ingress = self._verdict(source, destination)
                total = sums.setdefault((source_group, group), [0, 0])
                total[0] += pairs if allowed else 0
                total[1] += pairs
                reported = decisions.setdefault((source_group, group), {})
                self._note(reported, source, destination, pairs, allowed, by, ingress=ingress)
        groups = tuple(sorted(kept, key=lambda name: (name in (OUTSIDE, WITHOUT), name)))
        cells = {ends: Cell(*total) for ends, total in sums.items()}
        return Matrix(
            str(self._kind),
            self._version,
            groups,
            counts,
            cells,
            {ends: tuple(sorted(reported.values(), key=lambda one: (one.allowed, -one.pairs)))
             for ends, reported in decisions.items()},
            len(counts) - len(kept),
            left,
            tuple(notes),
        )  # fmt: skip

    def _at(self, one: Class) -> object:
        return one.address(self._version)

    def _verdict(self, source: Class, destination: Class) -> tuple[bool, Ruling | None, bool]:
        """Allowed or not, the ruling that decides, and whether it is the destination's."""
        egress = None if source.outside else self._ruling(source, destination, ingress=False)
        if egress is not None and not egress.allowed:
            return False, egress, False
        ingress = None if destination.outside else self._ruling(destination, source, ingress=True)
        if ingress is not None:
            return bool(ingress.allowed), ingress, True
        return True, egress, False

    def _ruling(self, own: Class, peer: Class, *, ingress: bool) -> Ruling:
        policy: EndpointPolicy = own.policies[0] or EndpointPolicy()
        which = (self._number(own), own.holders, peer.holders, peer.title, ingress)
        ruling = self._rulings.get(which)
        if ruling is None:
            mine, other = own.address(self._version), peer.address(self._version)
            assert mine is not None
            assert other is not None
            ends = (other, mine) if ingress else (mine, other)
            packet = Packet(*ends, self._kind)
            ruling = self._rulings[which] = walk(
                policy.tiers, policy.profiles, packet, self._matcher, ingress=ingress
            )
        return ruling

    def _number(self, one: Class) -> int:
        """Equal lists of policies have equal numbers; their hash is made once a class."""
        number = self._numbers.get(id(one))
        if number is None:
            number = self._lists.setdefault(one.policies[0], len(self._lists))
            self._numbers[id(one)] = number
        return number

    def _note(
        self,
        reported: dict[tuple[str, bool], Decision],
        source: Class,
        destination: Class,
        pairs: int,
        allowed: bool,
        by: Ruling | None,
        *,
        ingress: bool,
    ) -> None:
        decided, rule = self._text(by, ingress=ingress)
        known = reported.get((decided, allowed))
        if known is not None:
            reported[decided, allowed] = replace(known, pairs=known.pairs + pairs)
        elif len(reported) < MOST_DECISIONS:
            ends = _example(source), _example(destination, other_than=source)
            reported[decided, allowed] = Decision(allowed, *ends, pairs, decided, rule)

    def _text(self, ruling: Ruling | None, *, ingress: bool) -> tuple[str, str]:
        if ruling is None:
            return "nothing here decides", ""
        which = (id(ruling), ingress)
        if which not in self._texts:
            self._texts[which] = self._written(ruling, ingress=ingress)
        return self._texts[which]

    def _written(self, ruling: Ruling, *, ingress: bool) -> tuple[str, str]:
        station = Station(ingress, End(What.POD, "", ()), NORMAL, ruling)
        direction = "ingress" if ingress else "egress"
        number, rule = None, ""
        if ruling.policy is not None and ruling.rule is not None:
            stored = self._world.objects.get(ruling.policy)
            origin = written(ruling.policy, stored, ruling.rule, ingress=ingress)
            if origin is not None:
                number, rule = origin[0], without_secrets(rule_text(origin[1]))
        return f"{direction}: {decided_by(Judgement(station, None, number, rule))}", rule


def _pairs(source: Class, destination: Class) -> int:
    """Pairs of different pods; an outside address counts as one."""
    own, other = max(1, len(source.members)), max(1, len(destination.members))
    if source.members and {one.key for one in source.members} == {
        one.key for one in destination.members
    }:
        return own * (own - 1)
    return own * other


def _example(one: Class, other_than: Class | None = None) -> str:
    if one.outside:
        return one.title
    first = other_than.members[0] if other_than is not None and other_than.members else None
    return next((each.title for each in one.members if each != first), one.members[0].title)
