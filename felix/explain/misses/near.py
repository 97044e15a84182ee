"""The near misses of an answer: what almost allowed a packet that was denied, or the reverse.

At the station that denied, every policy is held against the packet that selects the endpoint, or
nearly does; at stations that allowed, the policies that were asked before. A rule is near if at
most two clauses of it and of its policy fail. With one that misses by one, those that miss by two
are not told.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from felix.calc.policy.facts import PolicyFacts, Stage, facts_of
from felix.calc.policy_model import TierView
from felix.explain.ends import What
from felix.explain.flow import Packet
from felix.explain.misses.asking import Asked, Reading, asked_at, faults_of_policy, unreadable_rule
from felix.explain.misses.clauses import Clauses
from felix.explain.misses.faults import Fault, NearMiss
from felix.explain.misses.labelled import Directory
from felix.explain.path import Questions
from felix.explain.stations import FORWARD, HOST, PRE_DNAT, UNTRACKED, Explanation, Station
from felix.explain.walk import By
from felix.explain.written import POLICIES, written
from libcalico.model import ResourceKey, Rule

MOST_FAULTS = 2
MOST_MISSES = 20
"""Near misses that one answer names."""
_STAGES = {UNTRACKED: Stage.UNTRACKED, PRE_DNAT: Stage.PRE_DNAT}


class Near(NamedTuple):
    """The near misses of an answer, the nearest first, and how many more there are."""

    misses: tuple[NearMiss, ...] = ()
    more: int = 0


NONE_NEAR = Near()


class Misses:
    """Near misses in one pair's world; what is looked up is kept for its other questions."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._directory: Directory | None = None
        self._facts: dict[ResourceKey, PolicyFacts] = {}

    def of(self, explanation: Explanation, *, kinds: bool = True) -> Near:
        """Those of an explanation. Without `kinds` it stands for many kinds of packets, and
        protocols and ports are not looked at."""
        misses: list[NearMiss] = []
        decider = explanation.decider
        stations = [decider] if decider is not None else list(explanation.stations)
        for station in stations:
            if station.end.endpoint is None or station.stage == HOST:
                continue
            if station.ruling.by in (By.FAILSAFE, By.NOTHING, By.SETTING, By.MISSING_PROFILE):
                continue
            misses += self._at(station, explanation.packet, kinds)
        least = min((len(miss.faults) for miss in misses), default=0)
        misses = [miss for miss in misses if len(miss.faults) == least]
        misses.sort(key=lambda miss: miss.rank)
        if decider is not None:
            misses = [*self._other_end(decider, explanation.packet), *misses]
            misses = [*self._unreadable(decider), *misses]
        return Near(tuple(misses[:MOST_MISSES]), max(0, len(misses) - MOST_MISSES))

    def _look(self) -> Directory:
        if self._directory is None:
            self._directory = Directory(self._questions.world)
        return self._directory

    def _at(self, station: Station, packet: Packet, kinds: bool) -> Iterator[NearMiss]:
        world = self._questions.world
        key = station.end.endpoint
        assert key is not None
        endpoint = self._look().of(key)
        clauses = Clauses(world, self._look())
        asked = asked_at(self._tiers(station), station)
        denied = station.ruling.allowed is False
        for kind in POLICIES:
            for policy, stored in world.of(kind):
                if not denied and policy not in asked.before:
                    continue
                facts = self._facts_of(policy, stored)
                if facts.closed or not self._belongs(station, facts):
                    continue
                own = faults_of_policy(policy, stored, facts, station, endpoint)
                if own is None or len(own) > MOST_FAULTS:
                    continue
                about = Reading(clauses, policy, stored, packet, station, kinds)
                yield from self._rules(about, facts, own, asked, denied)

    def _rules(
        self, about: Reading, facts: PolicyFacts, own: Sequence[Fault], asked: Asked, denied: bool
    ) -> Iterator[NearMiss]:
        actions = {"allow"} if denied else {"deny"}
        if about.station.ruling.by is By.TIER_END:
            actions.add("pass")
        selects = not own
        for number, rule, faults in about.rules(actions):
            if not denied and asked.decided_by(about.key) and about.after(number):
                continue
            later = asked.later(about, number) if denied and selects else ()
            together = (*own, *faults)
            if not together and not about.kinds:
                continue
            together = (*together, *later)
            if 0 < len(together) <= MOST_FAULTS:
                yield NearMiss(
                    about.station.direction,
                    about.station.end.title,
                    facts.tier,
                    about.key,
                    f"{about.direction}[{number}]",
                    rule.action,
                    together,
                    selects,
                )

    def _facts_of(self, key: ResourceKey, stored: Any) -> PolicyFacts:
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = facts_of(key, stored)
        return facts

    @staticmethod
    def _belongs(station: Station, facts: PolicyFacts) -> bool:
        """Whether a policy is of the kind that the station asks."""
        return facts.stage is _STAGES.get(station.stage, Stage.NORMAL)

    def _tiers(self, station: Station) -> Sequence[TierView]:
        engine = self._questions.calculation(station.end.node).engine
        key = station.end.endpoint
        assert key is not None
        if key.kind == "WorkloadEndpoint":
            policy = engine.endpoint(key)
            return () if policy is None else policy.tiers
        host = engine.host_endpoints.get(key)
        if host is None:
            return ()
        lists = {
            UNTRACKED: host.policy.untracked,
            PRE_DNAT: host.policy.pre_dnat,
            FORWARD: host.policy.forward,
        }
        return lists.get(station.stage, host.policy.tiers)

    def _unreadable(self, decider: Station) -> Iterator[NearMiss]:
        """A rule that cannot be read closes its policy: that is why it denies."""
        ruling = decider.ruling
        stored = None if ruling.policy is None else self._questions.world.objects.get(ruling.policy)
        if ruling.policy is None or stored is None or ruling.policy.kind not in POLICIES:
            return
        fault = unreadable_rule(ruling.policy, stored)
        if fault is not None:
            yield NearMiss(
                decider.direction, decider.end.title, ruling.tier, ruling.policy,
                fault.field.removeprefix("spec.").partition(".")[0], "", (fault,),
            )  # fmt: skip

    def _other_end(self, decider: Station, packet: Packet) -> Iterator[NearMiss]:
        """A policy of the other end that allows by name what this end denies."""
        questions = self._questions
        other = questions.source if decider.ingress else questions.destination
        if other.what is not What.POD or other.endpoint == decider.end.endpoint:
            return
        station = questions.pod_station(other, packet, ingress=not decider.ingress)
        ruling = station.ruling
        if not ruling.allowed or ruling.policy is None or ruling.rule is None:
            return
        if ruling.policy.kind == "Profile":
            return
        stored = questions.world.objects.get(ruling.policy)
        origin = written(ruling.policy, stored, ruling.rule, ingress=station.ingress)
        if origin is None or not _names_a_peer(origin[1], station.ingress):
            return
        number, rule = origin
        yield NearMiss(
            station.direction, other.title, ruling.tier, ruling.policy,
            f"{station.direction}[{number}]", rule.action, (_forgotten(decider, station),),
        )  # fmt: skip


def _names_a_peer(rule: Rule, ingress: bool) -> bool:
    peer = rule.source if ingress else rule.destination
    return bool(peer.selector or peer.namespaceSelector or peer.nets or peer.serviceAccounts)


def _forgotten(decider: Station, allowing: Station) -> Fault:
    end, direction = decider.end.title, decider.direction
    word = "destination" if decider.ingress else "source"
    return Fault(
        f"{direction} of the {word}",
        f"{allowing.direction} of {allowing.end.title} allows the packet",
        f"{direction} of {end} is judged on its own, and denies it",
        hint=f"allow it in {direction} of a policy that selects {end} as well",
    )
