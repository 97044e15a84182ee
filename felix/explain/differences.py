"""What differs between two calculations, and what lists of policies ask of addresses.

Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, EntityMatch
from libcalico.model import ResourceKey


def asked(side: EntityMatch) -> Iterator[object]:
    """What one side of a rule asks of an address: networks as texts, and ids of sets."""
    yield from map(str, (*side.nets, *side.not_nets))
    yield from side.sets
    yield from side.not_sets
    yield from side.services
    yield from side.named_ports
    yield from side.not_named_ports


def keys(view: EndpointPolicy | None, ingress: bool) -> Iterator[ResourceKey]:
    """The policies and profiles of a list in one direction."""
    if view is None:
        return
    for tier in view.tiers:
        yield from tier.ingress if ingress else tier.egress
    yield from (ResourceKey("Profile", name) for name in view.profiles)


def order(view: EndpointPolicy | None, ingress: bool) -> object:
    """What of a list matters in one direction."""
    if view is None:
        return None
    tiers = tuple(
        (tier.name, keys, tier.ends_in_deny)
        for tier in view.tiers
        if (keys := tier.ingress if ingress else tier.egress)
    )
    return tiers, view.profiles


def changed_programs(before: PolicyEngine, after: PolicyEngine) -> frozenset[ResourceKey]:
    """Policies and profiles whose rules, or the sets that they name, differ."""
    sets = {
        set_id
        for set_id in before.sets.keys() & after.sets.keys()
        if before.members(set_id) != after.members(set_id)
    }
    mine, theirs = (
        {p.key: p for p in (*engine.policies.values(), *engine.profiles.values())}
        for engine in (before, after)
    )
    return frozenset(
        key
        for key, policy in {**mine, **theirs}.items()
        if mine.get(key) != theirs.get(key)
        or any(
            not sets.isdisjoint(asked(side))
            for rule in (*policy.ingress, *policy.egress)
            for side in (rule.source, rule.destination)
        )
    )
