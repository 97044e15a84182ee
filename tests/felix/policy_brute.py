"""Policy calculated the slow way: every selector asked about everybody, nothing remembered.

Shares with the engine only what decides about one object alone (reading, resolving); who
matches what, who is in which set, and in which order, is done over again here.
"""

from __future__ import annotations

from typing import Any

from felix.calc.endpoints import from_resource
from felix.calc.policy.facts import PolicyFacts, Stage, closed, facts_of, resolve_policy
from felix.calc.policy.host_facts import host_facts
from felix.calc.policy.rules import resolve
from felix.calc.policy_model import EndpointPolicy, HostEndpoint, ResolvedPolicy, Run, TierView
from felix.calc.sets.items import Item, of_local, of_network_set, of_remote
from felix.calc.sets.service_sets import Need
from felix.calc.sets.set_needs import SetNeed
from libcalico.model import ResourceKey
from libcalico.model.resources.profile import DEFAULT_ALLOW, default_allow
from tests.felix.policy_objects import ME, Told

Objects = dict[ResourceKey, Any]


def calculate(objects: Objects) -> Told:
    """All that should have been told."""
    told = Told()
    profiles = {k.name: v for k, v in objects.items() if k.kind == "Profile"}
    profiles[DEFAULT_ALLOW] = default_allow()
    items = _items(objects)
    labels = {key: _labels(item, profiles) for key, item in items.items()}
    kinds = ("WorkloadEndpoint", "HostEndpoint")
    local = [k for k, v in objects.items() if k.kind in kinds and v.spec.node == ME]
    policies = {
        key: facts_of(key, value)
        for key, value in objects.items()
        if key.kind in ("NetworkPolicy", "GlobalNetworkPolicy")
    }
    needs: dict[str, SetNeed] = {}
    for key in local:
        selected = [
            facts
            for facts in policies.values()
            if facts.selector.matches(labels[key])
            and (facts.stage is Stage.NORMAL or key.kind == "HostEndpoint")
        ]
        if key.kind == "HostEndpoint":
            told.host_endpoints[key] = _host(key, selected, items[key].profiles, objects)
        else:
            told.endpoints[key] = EndpointPolicy(_tiers(selected, objects), items[key].profiles)
        for facts in selected:
            resolved, rules, _ = resolve_policy(facts, objects[facts.key])
            told.policies[facts.key] = resolved
            _note(needs, rules.needs)
        for name in items[key].profiles:
            told.profiles[name] = _profile(name, profiles, needs)
    for need in needs.values():
        told.sets[need.id] = {
            member
            for key, item in items.items()
            if need.selector.matches(labels[key])
            for member in item.contribution(need.port)
        }
    return told


def _host(
    key: ResourceKey, selected: list[PolicyFacts], profiles: tuple[str, ...], objects: Objects
) -> HostEndpoint:
    def stage(wanted: Stage) -> list[PolicyFacts]:
        return [facts for facts in selected if facts.stage is wanted]

    def early(wanted: Stage) -> tuple[TierView, ...]:
        views = _tiers(stage(wanted), objects)
        return tuple(
            TierView(v.name, v.ingress, v.egress, False, v.ingress_runs, v.egress_runs)
            for v in views
        )

    normal = stage(Stage.NORMAL)
    facts, _ = host_facts(key, objects[key])
    policy = EndpointPolicy(
        _tiers(normal, objects),
        profiles,
        untracked=early(Stage.UNTRACKED),
        pre_dnat=early(Stage.PRE_DNAT),
        forward=_tiers([one for one in normal if one.forward], objects),
    )
    return HostEndpoint(key, facts.interface, facts.addresses, policy)


def _items(objects: Objects) -> dict[ResourceKey, Item]:
    items = {}
    for key, value in objects.items():
        if key.kind.endswith("NetworkSet"):
            items[key] = of_network_set(key, value)[0]
        elif key.kind == "HostEndpoint":
            items[key] = host_facts(key, value)[0].item
        elif key.kind == "WorkloadEndpoint" and value.spec.node == ME:
            items[key] = of_local(from_resource(key, value))
        elif key.kind == "WorkloadEndpoint":
            items[key] = of_remote(key, value)[0]
    return items


def _labels(item: Item, profiles: dict[str, Any]) -> dict[str, str]:
    labels = dict(item.labels)
    for name in item.profiles:
        if name in profiles:
            for label, value in profiles[name].spec.labelsToApply.items():
                labels.setdefault(label, value)
    return labels


def _tiers(selected: list[Any], objects: Objects) -> tuple[TierView, ...]:
    views = []
    for name in {facts.tier for facts in selected}:
        tier = objects.get(ResourceKey("Tier", name))
        order = None if tier is None else tier.spec.order
        rank = (tier is None, float("inf") if order is None else order, name)
        inside = sorted(
            (f for f in selected if f.tier == name),
            key=lambda f: (f.order, f"{f.key.name}/{f.key.namespace}/{f.key.kind}"),
        )
        view = TierView(
            name,
            tuple(f.key for f in inside if f.ingress),
            tuple(f.key for f in inside if f.egress),
            tier is None or tier.spec.defaultAction != "Pass",
            _runs([f.selector.text for f in inside if f.ingress]),
            _runs([f.selector.text for f in inside if f.egress]),
        )
        views.append((rank, view))
    return tuple(view for _, view in sorted(views, key=lambda pair: pair[0]))


def _runs(texts: list[str]) -> tuple[Run, ...]:
    found = []
    for first in range(len(texts)):
        if first and texts[first] == texts[first - 1]:
            continue
        end = first
        while end < len(texts) and texts[end] == texts[first]:
            end += 1
        if end > first + 1:
            found.append(Run(first, end, texts[first]))
    return tuple(found)


def _note(needs: dict[str, SetNeed], found: tuple[Need, ...]) -> None:
    # Nobody tells of services here: no rule needs one.
    for need in found:
        assert isinstance(need, SetNeed)
        needs[need.id] = need


def _profile(name: str, profiles: dict[str, Any], needs: dict[str, SetNeed]) -> ResolvedPolicy:
    key = ResourceKey("Profile", name)
    if name not in profiles:
        return closed(key, "", missing=True)
    spec = profiles[name].spec
    ingress, egress = resolve(spec.ingress, "i"), resolve(spec.egress, "e")
    _note(needs, (*ingress.needs, *egress.needs))
    return ResolvedPolicy(key, "", ingress.rules, egress.rules)
