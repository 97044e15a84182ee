"""From a chain of the kernel back to what it stands for.

`calicoctl explain rule CHAIN[:N]` asks here. A chain's name may hold a digest, so names are
never taken apart: the names of all stored objects are made, and compared.

Tested in tests/felix/explain/test_reverse.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from felix.calc.policy.facts import Policy, facts_of, resolve_policy
from felix.calc.policy.rules import resolve
from felix.calc.policy_model import ANY_INTERFACE, ResolvedPolicy
from felix.dataplane.rules.settings import rule_settings
from felix.explain.chain_meaning import STATIC, KernelRule, Meaning
from felix.explain.group_chains import groups_called
from felix.explain.places import endpoint_chain, host_chain, rule_at
from felix.explain.report import named, rule_text
from felix.explain.stations import FORWARD, NORMAL, PRE_DNAT, TABLES, UNTRACKED
from felix.explain.world import NOWHERE, World, calculate
from felix.explain.written import POLICIES, written
from felix.rules import names
from felix.rules.groups import group_chain
from felix.rules.inputs import RuleSettings
from felix.rules.iptables import render_rule
from felix.rules.model import Chain
from felix.rules.policy import policy_chains
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import Profile, ResourceKey

LAYERS = tuple(f"{table}-" for table in ("filter", "mangle", "nat", "raw"))
"""What the chains of nftables have in front of the name."""
_POLICY_PREFIXES = {
    names.POLICY_INGRESS: True,
    names.POLICY_EGRESS: False,
    names.PROFILE_INGRESS: True,
    names.PROFILE_EGRESS: False,
}
_WORKLOAD_PREFIXES = {names.TO_WORKLOAD: True, names.FROM_WORKLOAD: False}
_HOST_PREFIXES = {
    names.FROM_HOST: (True, (NORMAL, PRE_DNAT, UNTRACKED)),
    names.TO_HOST: (False, (NORMAL, UNTRACKED)),
    names.FROM_HOST_FORWARD: (True, (FORWARD,)),
    names.TO_HOST_FORWARD: (False, (FORWARD,)),
}


def meanings(world: World, text: str, version: int) -> list[Meaning]:
    """What a chain may be, on whichever node; several nodes may have a chain of one name.

    Raises MuslinError where no stored object has such a chain.
    """
    table, chain = _layer(text)
    matches = list(_meanings(world, chain, version))
    if table:
        matches = [each for each in matches if each.table == table] or matches
    if not matches:
        raise MuslinError(
            f"no chain {chain}: no policy, profile or endpoint that is stored has one of this"
            " name. It may belong to an object that was deleted, or be cut short"
        )
    return matches


def split_number(text: str) -> tuple[str, int | None]:
    """CHAIN:N as its parts. Raises InvalidValue."""
    chain, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not (number.isascii() and number.isdigit() and int(number)):
        raise InvalidValue("CHAIN:N", text, "N must be the number of a rule, from 1")
    return chain, int(number)


def _layer(text: str) -> tuple[str, str]:
    for layer in LAYERS:
        if text.startswith(layer):
            return layer[:-1], text.removeprefix(layer)
    return "", text


def _meanings(world: World, chain: str, version: int) -> Iterator[Meaning]:
    if chain in STATIC:
        yield Meaning(chain, "", STATIC[chain], version=version)
        return
    for root in (names.FROM_WORKLOAD_DISPATCH, names.TO_WORKLOAD_DISPATCH):
        if chain.startswith(f"{root}-"):
            yield Meaning(chain, "filter", f"a bin of {root}: {STATIC[root]}", version=version)
    for table, tier, group in groups_called(world, chain):
        settings = rule_settings(world.config(NOWHERE), version)
        policies = ", ".join(map(named, group.members))
        yield Meaning(
            chain,
            table,
            f"policies of one selector, one after another: {policies}",
            tier=tier,
            direction=_direction(group.ingress),
            version=version,
            rules=_plain(group_chain(group, settings.marks)),
        )
    for prefix, ingress in _POLICY_PREFIXES.items():
        if chain.startswith(prefix):
            yield from _of_policies(world, prefix, chain, version, ingress=ingress)
    for prefix, ingress in _WORKLOAD_PREFIXES.items():
        if chain.startswith(prefix):
            yield from _of_workloads(world, prefix, chain, version, ingress=ingress)
    for prefix, (ingress, stages) in _HOST_PREFIXES.items():
        if chain.startswith(prefix):
            yield from _of_hosts(world, prefix, chain, version, stages, ingress=ingress)


def _of_policies(
    world: World, prefix: str, chain: str, version: int, *, ingress: bool
) -> Iterator[Meaning]:
    profile = prefix in (names.PROFILE_INGRESS, names.PROFILE_EGRESS)
    for kind in ("Profile",) if profile else POLICIES:
        for key, stored in sorted(world.of(kind)):
            if names.policy_chain(prefix, key) != chain:
                continue
            resolved = resolved_of(key, stored)
            settings = rule_settings(world.config(NOWHERE), version)
            made = policy_chains(resolved, version, settings.marks, settings.verdicts)
            rules = _rules_of(key, stored, resolved, made[0 if ingress else 1], version, settings,
                              ingress=ingress)  # fmt: skip
            yield Meaning(
                chain,
                "filter",
                named(key),
                tier=resolved.tier,
                policy=key,
                direction=_direction(ingress),
                version=version,
                rules=tuple(rules),
            )


def resolved_of(key: ResourceKey, stored: Policy | Profile) -> ResolvedPolicy:
    """A stored policy or profile as felix resolves it."""
    if not isinstance(stored, Profile):
        return resolve_policy(facts_of(key, stored), stored)[0]
    spec = stored.spec
    try:
        into, out = resolve(spec.ingress, "spec.ingress"), resolve(spec.egress, "spec.egress")
    except InvalidValue:
        return ResolvedPolicy(key, "", (), (), missing=True)
    return ResolvedPolicy(key, "", into.rules, out.rules)


def _rules_of(
    key: ResourceKey,
    stored: Policy | Profile,
    resolved: ResolvedPolicy,
    chain: Chain,
    version: int,
    settings: RuleSettings,
    *,
    ingress: bool,
) -> Iterator[KernelRule]:
    for number, rule in enumerate(chain.rules, 1):
        behind = rule_at(resolved, number, version, settings, ingress=ingress)
        origin = None if behind is None else written(key, stored, behind, ingress=ingress)
        if origin is None:
            yield KernelRule(number, render_rule(rule))
            continue
        index, text = origin
        yield KernelRule(
            number, render_rule(rule), f"{_direction(ingress)}[{index}]", rule_text(text)
        )


def _of_workloads(
    world: World, prefix: str, chain: str, version: int, *, ingress: bool
) -> Iterator[Meaning]:
    for key, stored in sorted(world.of("WorkloadEndpoint")):
        interface = stored.spec.interfaceName
        if names.endpoint_chain(prefix, interface) != chain:
            continue
        engine = calculate(world, [key]).engine
        policy = engine.endpoint(key)
        rules: tuple[KernelRule, ...] = ()
        if policy is not None:
            settings = rule_settings(world.config(stored.spec.node), version)
            rules = _plain(endpoint_chain(interface, policy, settings, ingress=ingress))
        yield Meaning(
            chain,
            "filter",
            f"pod {key.namespace}/{stored.spec.pod or stored.spec.workload}",
            endpoint=key,
            node=stored.spec.node,
            direction=_direction(ingress),
            version=version,
            rules=rules,
        )


def _of_hosts(
    world: World, prefix: str, chain: str, version: int, stages: tuple[str, ...], *, ingress: bool
) -> Iterator[Meaning]:
    for key, stored in sorted(world.of("HostEndpoint")):
        interface = stored.spec.interfaceName
        name = names.ANY_INTERFACE if interface == ANY_INTERFACE else interface
        if not name or names.endpoint_chain(prefix, name) != chain:
            continue
        host = calculate(world, [], stored.spec.node).engine.host_endpoints.get(key)
        if host is None:
            continue
        settings = rule_settings(world.config(stored.spec.node), version)
        for stage in stages:
            made = host_chain(interface, host.policy, stage, settings, ingress=ingress)
            if made is not None:
                yield Meaning(
                    chain,
                    TABLES[stage],
                    f"host endpoint {key.name}, {stage} policy",
                    endpoint=key,
                    node=stored.spec.node,
                    direction=_direction(ingress),
                    version=version,
                    rules=_plain(made),
                )


def _plain(chain: Chain) -> tuple[KernelRule, ...]:
    return tuple(KernelRule(n, render_rule(rule)) for n, rule in enumerate(chain.rules, 1))


def _direction(ingress: bool) -> str:
    return "ingress" if ingress else "egress"
