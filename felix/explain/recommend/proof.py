"""The proof: every talk that was seen, asked of both worlds of a plan.

A talk is between names, so each class of endpoints behind a name is asked once (POP-1 of
`felix.explain.populace`), with each address family that both ends have. Its own end decides about
it in its direction; what the other end says is no part of a namespace's policies.

Tested in tests/policy_recommend/test_worlds.py, where a planted bug is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from felix.calc.policy_model import EndpointPolicy
from felix.explain.flow import ECHO_OF, ICMP_OF, WITH_PORTS, IPAddress, Kind, Packet
from felix.explain.matching import Matcher
from felix.explain.plan_report import Comparison
from felix.explain.populace import Class
from felix.explain.recommend.crowd import Crowd
from felix.explain.recommend.peers import Peers
from felix.explain.recommend.seen import Talk
from felix.explain.walk import walk
from flows.record import End, EndKind
from libcalico.model import ResourceKey


@dataclass(frozen=True, slots=True)
class Proof:
    """`asked`: packets that stand for all seen. `denied`: talks that the proposal would deny,
    `before`: those that are denied today all the same; `unasked`: no end of theirs is left."""

    asked: int
    denied: tuple[Talk, ...]
    before: tuple[Talk, ...]
    unasked: tuple[Talk, ...]


class Prover:
    """Asks talks of the two calculations of a comparison."""

    def __init__(self, comparison: Comparison, crowd: Crowd, peers: Peers) -> None:
        self._engines = comparison.engines
        self._matchers = tuple(Matcher(engine) for engine in comparison.engines)
        self._crowd, self._peers = crowd, peers
        self._classes: dict[ResourceKey, Class] = {
            member.key: one for one in comparison.population for member in one.members
        }
        self._known: dict[End, dict[ResourceKey, tuple[IPAddress, ...]]] = {}
        self._addresses = {
            member.key: member.addresses for one in comparison.population for member in one.members
        }

    def prove(self, talks: Iterable[Talk]) -> Proof:
        """What becomes of these talks."""
        asked = 0
        denied, before, unasked = [], [], []
        for talk in talks:
            verdicts = [self._verdicts(each, talk) for each in self._packets(talk)]
            asked += len(verdicts)
            if not verdicts:
                unasked.append(talk)
            elif any(was and not then for was, then in verdicts):
                denied.append(talk)
            elif not any(was for was, _ in verdicts):
                before.append(talk)
        return Proof(asked, tuple(denied), tuple(before), tuple(unasked))

    def _verdicts(self, asked: tuple[ResourceKey, Packet], talk: Talk) -> tuple[bool, bool]:
        key, packet = asked
        was, then = (
            bool(walk(policy.tiers, policy.profiles, packet, matcher, ingress=talk.ingress).allowed)
            for engine, matcher in zip(self._engines, self._matchers, strict=True)
            for policy in (engine.endpoint(key) or EndpointPolicy(),)
        )
        return was, then

    def _packets(self, talk: Talk) -> Iterator[tuple[ResourceKey, Packet]]:
        for key, own in self._of(talk.own).items():
            for address in own:
                for other in self._others(talk.peer):
                    if other.version != address.version or other == address:
                        continue
                    kind = _kind(talk, address.version)
                    if kind is None:
                        continue
                    ends = (other, address) if talk.ingress else (address, other)
                    yield key, Packet(*ends, kind)

    def _others(self, end: End) -> Iterator[IPAddress]:
        if end.kind is not EndKind.WORKLOAD:
            yield from self._peers.examples(end)
            return
        for addresses in self._of(end).values():
            yield from addresses

    def _of(self, end: End) -> dict[ResourceKey, tuple[IPAddress, ...]]:
        """One endpoint of each class behind a name; two, so that a class may talk to itself."""
        known = self._known.get(end)
        if known is None:
            chosen: dict[Class, list[ResourceKey]] = {}
            for entry in self._crowd.of(end):
                if entry.key in self._classes:
                    assert entry.key is not None
                    some = chosen.setdefault(self._classes[entry.key], [])
                    if len(some) < 2:
                        some.append(entry.key)
            known = self._known[end] = {
                key: self._addresses[key] for keys in chosen.values() for key in keys
            }
        return known


def _kind(talk: Talk, version: int) -> Kind | None:
    if talk.protocol in ICMP_OF.values():
        if talk.protocol != ICMP_OF[version]:
            return None
        return Kind(talk.protocol, 0, 0, ECHO_OF[version])
    return Kind(talk.protocol, talk.port if talk.protocol in WITH_PORTS else 0)
