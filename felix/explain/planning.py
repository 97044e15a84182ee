"""Which flows would fare otherwise if some objects were stored: `calicoctl policy plan`.

Both worlds are calculated whole, endpoints are put into classes (`felix.explain.populace`), and
only those pairs of classes are looked at of which one has lists, rules or sets that differ. What
was decided once, for one list of policies, one class of the endpoint's own address and one of
the peer's, is remembered. The work is bounded in time: a plan that is not finished says so.

Host endpoints are not among the ends: what passes through hosts is taken as open.

Invariants:
  PLN-1  A flow between pods, or between a pod and an outside address, is in a finished plan
         exactly if its verdict differs between the two worlds.
Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, ResolvedRule
from felix.explain.classes import Class as Kinds
from felix.explain.classes import classes
from felix.explain.differences import asked, changed_programs, keys, order
from felix.explain.flow import Kind, Packet
from felix.explain.matching import Matcher
from felix.explain.plan_changes import Change, Outcome, Verdict
from felix.explain.populace import Class
from felix.explain.walk import Ruling, walk

Views = tuple[EndpointPolicy | None, EndpointPolicy | None]
Held = frozenset[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class _Lists:
    """The rules that a pair of lists has in one direction, and what they ask of addresses."""

    rules: tuple[ResolvedRule, ...]
    own: frozenset[object]
    peer: frozenset[object]
    affected: bool = False


class Plan:
    """Two calculations of the same endpoints, compared."""

    def __init__(self, before: PolicyEngine, after: PolicyEngine) -> None:
        self._engines = (before, after)
        self._matchers = (Matcher(before), Matcher(after))
        self._changed = changed_programs(before, after)
        self._views: dict[tuple[Views, bool], _Lists] = {}
        self._lists: dict[tuple[int, bool], _Lists] = {}
        self._narrowed: dict[tuple[int, int], Held] = {}
        self._rulings: dict[object, Ruling] = {}
        self._differs: dict[object, bool] = {}
        self._kinds: dict[object, list[Kinds]] = {}

    def rules(self) -> Iterator[ResolvedRule]:
        """All rules of both worlds."""
        for engine in self._engines:
            for policy in (*engine.policies.values(), *engine.profiles.values()):
                yield from policy.ingress
                yield from policy.egress

    def compare(self, population: list[Class], late: Callable[[], bool]) -> Outcome:
        """The changes; `late` says when to give up."""
        outcome = Outcome()
        pairs = list(self._pairs(population))
        for number, (source, destination) in enumerate(pairs):
            if late():
                outcome.left = len(pairs) - number
                break
            outcome.pairs += 1
            for version in (4, 6):
                outcome.changes += self._changes(source, destination, version)
        return outcome

    def _pairs(self, population: list[Class]) -> Iterator[tuple[Class, Class]]:
        sending = [c for c in population if not c.outside and self._of(c, False).affected]
        receiving = [c for c in population if not c.outside and self._of(c, True).affected]
        seen = set()
        for source in sending:
            for destination in population:
                if self._worth(source, destination):
                    seen.add((id(source), id(destination)))
                    yield source, destination
        for destination in receiving:
            for source in population:
                if (id(source), id(destination)) not in seen and self._worth(source, destination):
                    yield source, destination

    @staticmethod
    def _worth(source: Class, destination: Class) -> bool:
        # A pod reaches itself without the kernel's rules.
        return source is not destination or len(source.members) > 1

    def _changes(self, source: Class, destination: Class, version: int) -> Iterator[Change]:
        if source.address(version) is None or destination.address(version) is None:
            return
        if not (
            self._one_differs(source, destination, version, ingress=False)
            or self._one_differs(destination, source, version, ingress=True)
        ):
            return
        kinds = self.kinds_of(source, destination, version)
        for kind in kinds:
            verdicts = [
                Verdict(
                    self._ruling(w, source, destination, version, kind.example, ingress=False),
                    self._ruling(w, destination, source, version, kind.example, ingress=True),
                )
                for w in (0, 1)
            ]
            if verdicts[0].allowed is not verdicts[1].allowed:
                yield Change(
                    source, destination, version, kind, len(kinds), verdicts[0], verdicts[1]
                )

    def _one_differs(self, own: Class, peer: Class, version: int, *, ingress: bool) -> bool:
        """Whether this end alone gives another verdict on any packet (cached by what it sees)."""
        if own.outside:
            return False
        lists = self._of(own, ingress)
        if not lists.affected:
            return False
        which = (
            id(lists),
            version,
            self._narrow(own, lists.own),
            self._narrow(peer, lists.peer),
        )
        differs = self._differs.get(which)
        if differs is None:
            source, destination = (peer, own) if ingress else (own, peer)
            differs = self._differs[which] = any(
                self._said(0, own, peer, version, kind.example, ingress)
                is not self._said(1, own, peer, version, kind.example, ingress)
                for kind in self.kinds_of(source, destination, version, only=lists)
            )
        return differs

    def _said(
        self, world: int, own: Class, peer: Class, version: int, kind: Kind, ingress: bool
    ) -> bool:
        ruling = self._ruling(world, own, peer, version, kind, ingress=ingress)
        return ruling is None or bool(ruling.allowed)

    def _ruling(
        self, world: int, own: Class, peer: Class, version: int, kind: Kind, *, ingress: bool
    ) -> Ruling | None:
        if own.outside:
            return None
        lists = self._of(own, ingress)
        which = (
            world,
            id(lists),
            version,
            kind,
            self._narrow(own, lists.own),
            self._narrow(peer, lists.peer),
        )
        ruling = self._rulings.get(which)
        if ruling is None:
            mine, other = own.address(version), peer.address(version)
            assert mine is not None
            assert other is not None
            packet = Packet(other, mine, kind) if ingress else Packet(mine, other, kind)
            policy = own.policies[world] or EndpointPolicy()
            matcher = self._matchers[world]
            ruling = self._rulings[which] = walk(
                policy.tiers, policy.profiles, packet, matcher, ingress=ingress
            )
        return ruling

    def kinds_of(
        self, source: Class, destination: Class, version: int, only: _Lists | None = None
    ) -> list[Kinds]:
        """The classes of packets between two classes, as the rules of both ends make them."""
        parts = (
            [only]
            if only is not None
            else [
                self._of(one, ingress)
                for one, ingress in ((source, False), (destination, True))
                if not one.outside
            ]
        )
        ports = (tuple(sorted(set(source.named()))), tuple(sorted(set(destination.named()))))
        which = (version, ports, *(id(part) for part in parts))
        kinds = self._kinds.get(which)
        if kinds is None:
            rules = [rule for part in parts for rule in part.rules]
            kinds = self._kinds[which] = classes(
                rules, version, source=ports[0], destination=ports[1]
            )
        return kinds

    # -- what lists ask of addresses ---------------------------------------------------------------

    def _of(self, one: Class, ingress: bool) -> _Lists:
        which = (id(one), ingress)
        lists = self._lists.get(which)
        if lists is None:
            # Many classes have equal lists: what is remembered of one serves all.
            view = (one.policies, ingress)
            if view not in self._views:
                self._views[view] = self._look(one.policies, ingress)
            lists = self._lists[which] = self._views[view]
        return lists

    def _look(self, views: Views, ingress: bool) -> _Lists:
        rules: list[ResolvedRule] = []
        affected = order(views[0], ingress) != order(views[1], ingress)
        for world, view in enumerate(views):
            for key in keys(view, ingress):
                affected = affected or key in self._changed
                policy = self._matchers[world].policy(key)
                rules += policy.ingress if ingress else policy.egress
        sides = [
            frozenset(name for rule in rules for name in asked(getattr(rule, side)))
            for side in ("source", "destination")
        ]
        own, peer = (sides[1], sides[0]) if ingress else (sides[0], sides[1])
        return _Lists(tuple(rules), own, peer, affected)

    def _narrow(self, one: Class, asked: frozenset[object]) -> Held:
        which = (id(one), id(asked))
        holders = self._narrowed.get(which)
        if holders is None:
            holders = self._narrowed[which] = frozenset(
                holder for holder in one.holders if holder[2] in asked
            )
        return holders
