"""Packets by the policy that decided about them: counters for Prometheus, made of flows.

Invariant:
  PCN-1  At most `MOST` policies are counted apart; what is beyond is counted together, so sums
         stay right.
Tested in tests/felix/flows/test_policy_counts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flows.record import Action, Flow, Hit, PolicyKind, Reporter
from libcalico.process.prometheus_text import Figure, labelled

MOST = 1000
METRIC = "muslin_felix_policy_packets_total"
_HELP = "Packets of flows by the policy that decided; with flow logs."
_ACTIONS = {Action.ALLOW: "allow", Action.DENY: "deny"}


@dataclass(frozen=True, slots=True)
class _Policy:
    kind: str
    tier: str
    namespace: str
    name: str
    action: str
    direction: str


OTHERS = _Policy("others", "", "", "", "", "")


class PolicyCounts:
    """The counts of one felix since it began."""

    def __init__(self) -> None:
        self._packets: dict[_Policy, int] = {}

    def add(self, flows: Iterable[Flow]) -> None:
        """Count the packets of flows, both ways."""
        for flow in flows:
            packets = flow.counts.packets_in + flow.counts.packets_out
            policy = _decider(flow)
            if policy not in self._packets and len(self._packets) >= MOST:
                policy = OTHERS
            self._packets[policy] = self._packets.get(policy, 0) + packets

    def figures(self) -> Iterator[Figure]:
        """The metric."""
        samples = ((_labels(one), packets) for one, packets in self._packets.items())
        yield from labelled(METRIC, _HELP, samples, "counter")


def _labels(one: _Policy) -> dict[str, str]:
    return {
        "kind": one.kind,
        "tier": one.tier,
        "policy_namespace": one.namespace,
        "policy": one.name,
        "action": one.action,
        "direction": one.direction,
    }


def _decider(flow: Flow) -> _Policy:
    key = flow.key
    action = _ACTIONS.get(key.action, "")
    direction = "egress" if key.reporter is Reporter.SOURCE else "ingress"
    if not key.trace.enforced:
        return _Policy("unknown", "", "", "", action, direction)
    hit: Hit = key.trace.enforced[-1]
    kind = hit.kind.name.lower()
    if hit.kind is PolicyKind.END_OF_TIER and hit.trigger is not None:
        return _Policy(kind, hit.tier, hit.trigger.namespace, hit.trigger.name, action, direction)
    return _Policy(kind, hit.tier, hit.namespace, hit.name, action, direction)
