"""From resolved rules back to the rules that the operator wrote.

A written rule may become two resolved ones, or none (`felix.calc.policy.rules`), so their numbers
differ. Every written rule is resolved alone here, and how many came of it is counted.

Tested in tests/felix/explain/test_places.py.
"""

from __future__ import annotations

from felix.calc.policy.facts import Policy, facts_of
from felix.calc.policy.rules import resolve
from libcalico.errors import InvalidValue
from libcalico.model import Profile, ResourceKey, Rule

POLICIES = ("NetworkPolicy", "GlobalNetworkPolicy")


def origins(
    key: ResourceKey, stored: Policy | Profile | None, *, ingress: bool, services: bool = False
) -> tuple[int, ...]:
    """For each resolved rule of one direction, the number of the written one, from 0.

    `services`: whether who resolved them knew the endpoints of services; a rule that names one is
    none where not. Empty where the policy is closed: its one rule is not a written one.
    """
    if stored is None or (not isinstance(stored, Profile) and facts_of(key, stored).closed):
        return ()
    numbers: list[int] = []
    try:
        for direction in ("ingress", "egress"):
            # One unreadable rule closes the policy in both directions.
            field = f"spec.{direction}"
            for number, rule in enumerate(getattr(stored.spec, direction)):
                came = len(resolve([rule], field, key.namespace, services=services).rules)
                if (direction == "ingress") is ingress:
                    numbers += [number] * came
    except InvalidValue:
        return ()
    return tuple(numbers)


def written(
    key: ResourceKey,
    stored: Policy | Profile | None,
    resolved: int,
    *,
    ingress: bool,
    services: bool = False,
) -> tuple[int, Rule] | None:
    """Number (from 0) and text of the written rule behind a resolved one; `services` as there."""
    numbers = origins(key, stored, ingress=ingress, services=services)
    if stored is None or resolved >= len(numbers):
        return None
    number = numbers[resolved]
    rules = stored.spec.ingress if ingress else stored.spec.egress
    return number, rules[number]
