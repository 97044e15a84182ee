"""Which policies a group's chain holds (`felix.rules.groups`).

Its name is a digest of what it holds, which cannot be taken apart; so the groups of all stored
endpoints are made, and compared.

Tested in tests/felix/explain/test_reverse.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from felix.calc.policy_model import EndpointPolicy, TierView
from felix.explain.stations import FORWARD, NORMAL, PRE_DNAT, TABLES, UNTRACKED
from felix.explain.world import NOWHERE, World, calculate
from felix.rules import names
from felix.rules.groups import GroupKey, groups

_PREFIXES = {names.GROUP_INGRESS: True, names.GROUP_EGRESS: False}


def groups_called(world: World, chain: str) -> Iterator[tuple[str, str, GroupKey]]:
    """(table, tier, group) of those whose chain has this name; the same group may be in several
    tables.
    """
    for prefix, ingress in _PREFIXES.items():
        if not chain.startswith(prefix):
            continue
        seen: set[tuple[str, TierView]] = set()
        tables: set[str] = set()
        for table, tier in _tiers(world):
            if (table, tier) in seen:
                continue
            seen.add((table, tier))
            for group in groups(tier, ingress=ingress):
                if table not in tables and names.policy_chain(prefix, group) == chain:
                    tables.add(table)
                    yield table, tier.name, group


def _tiers(world: World) -> Iterator[tuple[str, TierView]]:
    """The tiers of all endpoints, each with the table that its chains are in."""
    workloads = {key for key, _ in world.of("WorkloadEndpoint")}
    for policy in calculate(world, workloads).engine.endpoints.values():
        for tier in policy.tiers:
            yield "filter", tier
    nodes = {value.spec.node for _, value in world.of("HostEndpoint")} - {NOWHERE}
    for node in sorted(nodes):
        for host in calculate(world, (), node).engine.host_endpoints.values():
            yield from _of_host(host.policy)


def _of_host(policy: EndpointPolicy) -> Iterator[tuple[str, TierView]]:
    stages = {
        NORMAL: policy.tiers,
        FORWARD: policy.forward,
        PRE_DNAT: policy.pre_dnat,
        UNTRACKED: policy.untracked,
    }
    for stage, tiers in stages.items():
        for tier in tiers:
            yield TABLES[stage], tier
