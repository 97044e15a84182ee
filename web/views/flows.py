"""View 2, flows: what was seen, which rule decided, and who talks to whom as a Sankey. Pure.

The filters are Goldmane's own, one field each; alternatives are separated by commas.
Tested in tests/web/test_flows_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from flows.query import Filter, FlowQuery, Listing, PolicyMatch, SortBy, Text
from flows.record import Action, End, EndKind, Flow, Hit, PolicyKind, Reporter
from libcalico.errors import InvalidValue

E = TypeVar("E")

FIELDS = (
    ("source_namespace", "Source namespace"),
    ("source_name", "Source name"),
    ("destination_namespace", "Destination namespace"),
    ("destination_name", "Destination name"),
    ("protocol", "Protocol"),
    ("port", "Port"),
    ("policy", "Policy"),
    ("policy_namespace", "Policy namespace"),
    ("tier", "Tier"),
)
ACTIONS = {"": Action.UNSPECIFIED, "allow": Action.ALLOW, "deny": Action.DENY}
REPORTERS = {
    "": Reporter.UNSPECIFIED,
    "source": Reporter.SOURCE,
    "destination": Reporter.DESTINATION,
}
MINUTES = ("1", "5", "15", "60")
MOST_ROWS = 500
MOST_BANDS = 24
"""Namespaces of one side of the Sankey, those with the most connections; others are one band."""
OTHERS = "(others)"
NAMES = frozenset({*(name for name, _ in FIELDS), "action", "pending", "reporter", "minutes"})
KINDS = {
    PolicyKind.CALICO_NETWORK_POLICY: "NetworkPolicy",
    PolicyKind.GLOBAL_NETWORK_POLICY: "GlobalNetworkPolicy",
    PolicyKind.STAGED_NETWORK_POLICY: "StagedNetworkPolicy",
    PolicyKind.STAGED_GLOBAL_NETWORK_POLICY: "StagedGlobalNetworkPolicy",
    PolicyKind.STAGED_KUBERNETES_NETWORK_POLICY: "StagedKubernetesNetworkPolicy",
    PolicyKind.KUBERNETES_NETWORK_POLICY: "NetworkPolicy of Kubernetes",
    PolicyKind.PROFILE: "Profile",
    PolicyKind.CLUSTER_NETWORK_POLICY: "ClusterNetworkPolicy",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One flow in words."""

    when: str
    verdict: str
    source: str
    destination: str
    packets: str
    service: str
    decided: str
    pending: str
    reporter: str
    connections: int
    counts: str


@dataclass(frozen=True, slots=True)
class Band:
    """Connections from one namespace to another; `denied` of `total`."""

    source: str
    destination: str
    total: int
    denied: int


@dataclass(frozen=True, slots=True)
class FlowView:
    """Flows, newest first, and the bands between namespaces. `total`: also those not listed."""

    rows: tuple[Row, ...]
    bands: tuple[Band, ...]
    total: int


def query_of(given: Mapping[str, str]) -> FlowQuery:
    """The question of a deep link. Raises InvalidValue naming the field."""
    minutes = given.get("minutes", "15")
    if minutes not in MINUTES:
        raise InvalidValue("minutes", minutes, f"one of {', '.join(MINUTES)}")
    ports = []
    for text in _listed(given.get("port", "")):
        if not (text.isascii() and text.isdigit() and int(text) <= 65535):
            raise InvalidValue("port", text, "0 to 65535")
        ports.append(int(text))
    policy = PolicyMatch(
        tier=Text(given.get("tier", "")),
        namespace=Text(given.get("policy_namespace", "")),
        name=Text(given.get("policy", ""), fuzzy=True),
    )
    chosen = Filter(
        source_names=_texts(given, "source_name", fuzzy=True),
        source_namespaces=_texts(given, "source_namespace"),
        destination_names=_texts(given, "destination_name", fuzzy=True),
        destination_namespaces=_texts(given, "destination_namespace"),
        protocols=_texts(given, "protocol"),
        ports=tuple(ports),
        actions=_actions(given, "action"),
        pending_actions=_actions(given, "pending"),
        policies=(policy,) if {"tier", "policy", "policy_namespace"} & set(given) else (),
        reporter=_one_of("reporter", given.get("reporter", ""), REPORTERS),
    )
    start = -60 * int(minutes)
    return FlowQuery(start=start, filter=chosen, sort=(SortBy.TIME,), page_size=MOST_ROWS)


def flow_view(listing: Listing) -> FlowView:
    """The view of a page of flows."""
    flows = [seen.flow for seen in listing.flows]
    return FlowView(tuple(map(_row, flows)), tuple(bands(flows)), listing.total)


def bands(flows: Sequence[Flow]) -> list[Band]:
    """Connections between namespaces, both reporters of one connection counted once."""
    sums: dict[tuple[str, str], list[int]] = {}
    for ends, (total, denied) in _connections(flows).items():
        reported = sums.setdefault(ends, [0, 0])
        reported[0] += total
        reported[1] += denied
    kept = [_largest(sums, side) for side in (0, 1)]
    merged: dict[tuple[str, str], list[int]] = {}
    for (source, destination), (total, denied) in sums.items():
        ends = (
            source if source in kept[0] else OTHERS,
            destination if destination in kept[1] else OTHERS,
        )
        known = merged.setdefault(ends, [0, 0])
        known[0] += total
        known[1] += denied
    return [
        Band(*ends, *counts) for ends, counts in sorted(merged.items(), key=lambda one: -one[1][0])
    ]


def _connections(flows: Sequence[Flow]) -> dict[tuple[str, str], list[int]]:
    """(total, denied) by namespaces. Of two reporters the larger number counts, and a connection
    that one allows and the other denies is denied."""
    seen: dict[object, dict[Reporter, list[int]]] = {}
    where: dict[object, tuple[str, str]] = {}
    for flow in flows:
        key = flow.key
        which = (key.source, key.destination, key.port, key.protocol)
        where[which] = place(key.source), place(key.destination)
        reported = seen.setdefault(which, {}).setdefault(key.reporter, [0, 0])
        number = max(1, flow.counts.started)
        reported[0] += number
        reported[1] += number if key.action is Action.DENY else 0
    result: dict[tuple[str, str], list[int]] = {}
    for ends, reporters in seen.items():
        sums = result.setdefault(where[ends], [0, 0])
        total = max(counts[0] for counts in reporters.values())
        sums[0] += total
        sums[1] += min(total, sum(counts[1] for counts in reporters.values()))
    return result


def _largest(sums: Mapping[tuple[str, str], Sequence[int]], side: int) -> set[str]:
    counted: dict[str, int] = {}
    for ends, counts in sums.items():
        counted[ends[side]] = counted.get(ends[side], 0) + counts[0]
    return set(sorted(counted, key=lambda name: -counted[name])[:MOST_BANDS])


def place(end: End) -> str:
    """The namespace of a pod, else what kind of end it is."""
    if end.namespace:
        return end.namespace
    words = {
        EndKind.HOST: "nodes",
        EndKind.NETWORK_SET: f"network set {end.name}",
        EndKind.NETWORK: {"pub": "public", "pvt": "private"}.get(end.name, end.name),
    }
    return words.get(end.kind, end.name or "unknown")


def decided(hits: Sequence[Hit]) -> str:
    """The rule that decided: the last one that acted."""
    if not hits:
        return "no rule is told"
    hit = hits[-1]
    verb = {Action.ALLOW: "allow", Action.DENY: "deny", Action.PASS: "pass"}.get(hit.action, "")
    if hit.kind is PolicyKind.END_OF_TIER:
        by = f", where {named(hit.trigger)} selects it" if hit.trigger is not None else ""
        return f"{verb}: end of tier {hit.tier}{by}"
    where = f"tier {hit.tier}, " if hit.tier and hit.kind is not PolicyKind.PROFILE else ""
    return f"{verb}: {where}{named(hit)}, rule {hit.rule_index}"


def named(hit: Hit) -> str:
    """`NetworkPolicy shop/db`."""
    name = f"{hit.namespace}/{hit.name}" if hit.namespace else hit.name
    return f"{KINDS.get(hit.kind, 'policy')} {name}"


def _row(flow: Flow) -> Row:
    key, counts = flow.key, flow.counts
    service = key.service
    port = f" port {key.port}" if key.port else ""
    return Row(
        f"{datetime.fromtimestamp(flow.start, UTC):%H:%M:%S}",
        "✕ DENIED" if key.action is Action.DENY else "✓ allowed",
        _end(key.source),
        _end(key.destination),
        f"{key.protocol}{port}",
        f"{service.namespace}/{service.name}" if service.name else "",
        decided(key.trace.enforced),
        "" if key.trace.pending == key.trace.enforced else decided(key.trace.pending),
        key.reporter.name.lower(),
        counts.started,
        f"{counts.packets_in}/{counts.packets_out} packets,"
        f" {counts.bytes_in}/{counts.bytes_out} bytes",
    )


def _end(end: End) -> str:
    return f"{end.namespace}/{end.name}" if end.namespace else f"{place(end)} {end.name}".strip()


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _texts(given: Mapping[str, str], name: str, *, fuzzy: bool = False) -> tuple[Text, ...]:
    return tuple(Text(part, fuzzy) for part in _listed(given.get(name, "")))


def _actions(given: Mapping[str, str], name: str) -> tuple[Action, ...]:
    action = _one_of(name, given.get(name, ""), ACTIONS)
    return (action,) if action is not Action.UNSPECIFIED else ()


def _one_of(name: str, text: str, allowed: Mapping[str, E]) -> E:
    if text not in allowed:
        words = ", ".join(repr(one) for one in allowed if one)
        raise InvalidValue(name, text, f"one of {words}")
    return allowed[text]
