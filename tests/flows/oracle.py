"""The same answers from a plain list of flows, by reading all of it each time.

Written from the API's text, with none of the aggregator's parts.
"""

from __future__ import annotations

from collections import defaultdict

from flows.query import (
    Direction,
    Filter,
    GroupBy,
    PolicyMatch,
    Seen,
    StatisticKind,
    StatisticsQuery,
    Text,
)
from flows.record import Action, Counts, End, Flow, Hit, Key, PolicyKind, Reporter

BEYOND = {"pub": "PUBLIC NETWORK", "pvt": "PRIVATE NETWORK"}


def listed(world: list[Flow], chosen: Filter, start: int, end: int) -> dict[Key, Flow]:
    """What a list of everything gives, by key."""
    groups: dict[Key, list[Flow]] = defaultdict(list)
    for flow in world:
        if start <= flow.start < end and passes(chosen, flow.key):
            groups[flow.key].append(flow)
    return {key: together(flows) for key, flows in groups.items()}


def together(flows: list[Flow]) -> Flow:
    """Flows of one key as one."""
    newest = max(flow.start for flow in flows)
    sums = {
        name: sum(getattr(flow.counts, name) for flow in flows) for name in Counts.__struct_fields__
    }
    sums["live"] = sum(flow.counts.live for flow in flows if flow.start == newest)
    source = set.intersection(*(set(flow.source_labels) for flow in flows))
    destination = set.intersection(*(set(flow.destination_labels) for flow in flows))
    return Flow(
        flows[0].key,
        min(flow.start for flow in flows),
        max(flow.end for flow in flows),
        Counts(**sums),
        tuple(sorted(source)),
        tuple(sorted(destination)),
    )


def passes(chosen: Filter, key: Key) -> bool:
    """Whether a filter lets a key through."""
    hits = [*key.trace.enforced, *key.trace.pending]
    judged = [
        _one_of(chosen.source_names, _shown(key.source)),
        _one_of(chosen.destination_names, _shown(key.destination)),
        _one_of(chosen.source_namespaces, [key.source.namespace or "-"]),
        _one_of(chosen.destination_namespaces, [key.destination.namespace or "-"]),
        _one_of(chosen.protocols, [key.protocol]),
        not chosen.ports or key.port in set(chosen.ports),
        not chosen.actions or key.action in set(chosen.actions),
        chosen.reporter == Reporter.UNSPECIFIED or chosen.reporter == key.reporter,
        not chosen.policies or any(_hit(one, hit) for one in chosen.policies for hit in hits),
        not chosen.pending_actions
        or any(hit.action in set(chosen.pending_actions) for hit in key.trace.pending),
    ]
    return all(judged)


def _shown(end: End) -> list[str]:
    return [end.name, *([BEYOND[end.name]] if end.name in BEYOND else [])]


def _one_of(texts: tuple[Text, ...], values: list[str]) -> bool:
    if not texts:
        return True
    for text in texts:
        for value in values:
            if value == text.value or (text.fuzzy and value.find(text.value) >= 0):
                return True
    return False


def _hit(wanted: PolicyMatch, hit: Hit) -> bool:
    if wanted.action != Action.UNSPECIFIED and wanted.action != hit.action:
        return False
    return any(_policy(wanted, one) for one in (hit, hit.trigger) if one is not None)


def _policy(wanted: PolicyMatch, policy: Hit) -> bool:
    texts = [
        (wanted.tier, policy.tier),
        (wanted.namespace, policy.namespace),
        (wanted.name, policy.name),
    ]
    if wanted.kind != PolicyKind.UNSPECIFIED and wanted.kind != policy.kind:
        return False
    return all(not text.value or _one_of((text,), [value]) for text, value in texts)


def sorted_by(flows: list[Seen], value: str) -> list[object]:
    """The values of a field such as `source.name`, in the order of the list."""
    end, field = value.split(".")
    return [getattr(getattr(one.flow.key, end), field) for one in flows]


def figures(
    world: list[Flow], query: StatisticsQuery, end: int
) -> dict[tuple[object, ...], object]:
    """Figures by what they are of: for each bucket a list of six numbers."""
    found: dict[tuple[object, ...], dict[int, list[int]]] = defaultdict(dict)
    for flow in world:
        if not query.start <= flow.start < end:
            continue
        egress = flow.key.reporter == Reporter.SOURCE
        rules = set()
        for hit in [*flow.key.trace.enforced, *flow.key.trace.pending]:
            policy = hit.trigger or hit
            wanted = query.policy.action
            if wanted in (Action.UNSPECIFIED, hit.action) and _policy(query.policy, policy):
                named = (policy.kind, policy.tier, policy.namespace, policy.name)
                rules.add((*named, hit.action, hit.rule_index))
        for rule in rules:
            group: tuple[object, ...] = rule[:4]
            if query.group_by == GroupBy.RULE:
                group = (*rule, Direction.EGRESS if egress else Direction.INGRESS)
            row = found[group].setdefault(flow.start, [0] * 6)
            place = [Action.ALLOW, Action.DENY, Action.PASS].index(rule[4]) * 2
            into, out = _counted(flow, query.kind, egress)
            row[place] += into
            row[place + 1] += out
    return {group: dict(sorted(rows.items())) for group, rows in found.items()}


def _counted(flow: Flow, kind: StatisticKind, egress: bool) -> tuple[int, int]:
    counts = flow.counts
    if kind == StatisticKind.PACKETS:
        return counts.packets_in, counts.packets_out
    if kind == StatisticKind.BYTES:
        return counts.bytes_in, counts.bytes_out
    return (0, counts.live) if egress else (counts.live, 0)
