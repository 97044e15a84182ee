"""What a running felix answers: its own calculation at one station, its own counts of denials.

Pure; `felix.questions` reads the counters. A question from `calicoctl explain --live` names the
stations that the datastore's answer came by; here each is decided again by what this felix has.

Tested in tests/felix/kernel/test_explain_live.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address

from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy, Verb
from felix.explain.flow import Kind, Packet
from felix.explain.matching import Matcher
from felix.explain.places import endpoint_chain, rule_place
from felix.explain.stations import FORWARD, NORMAL, PRE_DNAT, UNTRACKED
from felix.explain.walk import walk
from felix.explain.written import written
from felix.rules import names
from felix.rules.inputs import RuleSettings
from felix.rules.model import Chain, set_bits
from felix.rules.policy import policy_chains
from libcalico.local.trace_messages import Ask, Decided, Denier, DropCount, Station
from libcalico.model import ResourceKey

Counters = Mapping[str, Sequence[tuple[int, int]]]
"""Packets and bytes of each rule, by chain."""


def packet_of(question: Ask) -> Packet:
    """The packet of a question. Raises ValueError for what is no address."""
    return Packet(
        ip_address(question.source),
        ip_address(question.destination),
        Kind(
            question.protocol,
            question.destination_port,
            question.source_port,
            question.icmp_type,
            question.icmp_code,
        ),
    )


def decide(engine: PolicyEngine, matcher: Matcher, packet: Packet, station: Station) -> Decided:
    """What this felix decides at a station."""
    policy = _policy(engine, ResourceKey(station.kind, station.name, station.namespace))
    if policy is None:
        return Decided(unknown=True)
    if station.stage == NORMAL:
        ruling = walk(policy.tiers, policy.profiles, packet, matcher, ingress=station.ingress)
    else:
        stages = {UNTRACKED: policy.untracked, PRE_DNAT: policy.pre_dnat, FORWARD: policy.forward}
        ruling = walk(stages[station.stage], None, packet, matcher, ingress=station.ingress)
    key = ruling.policy
    return Decided(
        allowed=ruling.allowed,
        by=ruling.by.value,
        tier=ruling.tier,
        policy=[] if key is None else [key.kind, key.namespace, key.name],
        rule=ruling.rule,
    )


def _policy(engine: PolicyEngine, key: ResourceKey) -> EndpointPolicy | None:
    if key.kind == "WorkloadEndpoint":
        return engine.endpoint(key)
    host = engine.host_endpoints.get(key)
    return None if host is None else host.policy


def length(
    engine: PolicyEngine, station: Station, decided: Decided, interface: str, version: int,
    settings: RuleSettings,
) -> int | None:  # fmt: skip
    """How many rules the chain of a station should have, None where that is not known here."""
    settings = replace(settings, verdicts=settings.verdicts_of(station.table or "filter"))
    chains: list[Chain] = []
    key = ResourceKey(station.kind, station.name, station.namespace)
    own = engine.endpoint(key)
    if decided.policy:
        kind, namespace, name = decided.policy
        program = (
            engine.profiles.get(name)
            if kind == "Profile"
            else engine.policies.get(ResourceKey(kind, name, namespace))
        )
        if program is not None:
            chains += policy_chains(program, version, settings.marks, settings.verdicts)
    elif own is not None and interface:
        chains.append(endpoint_chain(interface, own, settings, ingress=station.ingress))
    return next((len(c.rules) for c in chains if c.name == station.chain), None)


def denier(engine: PolicyEngine, key: ResourceKey, rule: int, *, ingress: bool) -> Denier:
    """The rule of a policy or profile that denied a packet."""
    stored, services = engine.stored(key), engine.knows_services
    source = written(key, stored, rule, ingress=ingress, services=services)
    resolved = engine.policies.get(key)
    return Denier(
        ingress,
        "" if resolved is None else resolved.tier,
        key.kind,
        key.namespace,
        key.name,
        None if source is None else source[0],
    )


def chains_of_denials(engine: PolicyEngine, endpoints: Mapping[str, EndpointPolicy]) -> list[str]:
    """The chains in which pods' packets are denied, by name."""
    chains: list[str] = []
    for program in _programs(engine):
        profile = program.key.kind == "Profile"
        into = names.PROFILE_INGRESS if profile else names.POLICY_INGRESS
        out = names.PROFILE_EGRESS if profile else names.POLICY_EGRESS
        chains += [names.policy_chain(prefix, program.key) for prefix in (into, out)]
    for interface in endpoints:
        chains += [
            names.endpoint_chain(prefix, interface)
            for prefix in (names.TO_WORKLOAD, names.FROM_WORKLOAD)
        ]
    return chains


def _programs(engine: PolicyEngine) -> tuple[ResolvedPolicy, ...]:
    return (*engine.policies.values(), *engine.profiles.values())


def denials(
    engine: PolicyEngine,
    endpoints: Mapping[str, EndpointPolicy],
    version: int,
    settings: RuleSettings,
    counters: Counters,
    called: Callable[[str], str],
) -> Iterator[list[DropCount]]:
    """Who denied how many packets, one policy or endpoint at a time, so that others may work
    between. `called`: the name of an interface's pod."""
    for policy in _programs(engine):
        for ingress in (True, False):
            yield list(_of_policy(engine, policy, version, settings, counters, ingress=ingress))
    for interface, own in endpoints.items():
        drops = []
        for ingress in (True, False):
            chain = endpoint_chain(interface, own, settings, ingress=ingress)
            counts = counters.get(chain.name, ())
            if len(counts) != len(chain.rules):
                continue
            for rule, (packets, octets) in zip(chain.rules, counts, strict=True):
                end = next(filter(None, map(_end, rule.comments)), None)
                if packets and end is not None and rule.action == settings.verdicts.deny:
                    by = Denier(ingress, end[1])
                    drops.append(DropCount(by, packets, octets, version, called(interface)))
        yield drops


def _end(comment: str) -> tuple[bool, str] | None:
    if comment.startswith("Drop if no profiles matched"):
        return (False, "")
    if comment.startswith("End of tier "):
        return (True, comment.removeprefix("End of tier ").partition(". ")[0])
    return None


def _of_policy(
    engine: PolicyEngine,
    policy: ResolvedPolicy,
    version: int,
    settings: RuleSettings,
    counters: Counters,
    *,
    ingress: bool,
) -> Iterator[DropCount]:
    both = policy_chains(policy, version, settings.marks, settings.verdicts)
    chain = both[0 if ingress else 1]
    counts = counters.get(chain.name, ())
    dropping = set_bits(settings.marks.drop)
    if len(counts) != len(chain.rules) or not any(
        packets and rule.action == dropping
        for rule, (packets, _) in zip(chain.rules, counts, strict=True)
    ):
        return
    if policy.missing:
        packets, octets = counts[0]
        yield DropCount(denier(engine, policy.key, 0, ingress=ingress), packets, octets, version)
        return
    for number, rule in enumerate(policy.ingress if ingress else policy.egress):
        if rule.verb in (Verb.ALLOW, Verb.LOG):
            continue
        place = rule_place(policy, number, version, settings, ingress=ingress)
        if not place.rule or chain.rules[place.rule - 1].action != dropping:
            continue
        packets, octets = counts[place.rule - 1]
        if packets:
            by = denier(engine, policy.key, number, ingress=ingress)
            yield DropCount(by, packets, octets, version)
