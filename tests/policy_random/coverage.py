"""What a stream of worlds reaches: read from the documents, and proved by what verdicts notice.

Two figures for each feature. `seen`: how many rules, policies or selectors have it. `noticed`: how
many verdicts of sampled packets change when an implementation ignores it or takes it for something
else (`MUTATIONS`, applied to the documents, judged by the oracle again). A feature whose loss
nobody would notice is not covered, however often it is written.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from tests.policy_random import oracle_selectors
from tests.policy_random.generator import World
from tests.policy_random.oracle import Flow, Oracle, is_name, protocol_number

Document = dict[str, Any]
POLICIES = ("NetworkPolicy", "GlobalNetworkPolicy")
STAGES = ("doNotTrack", "preDNAT", "applyOnForward")
STAGED = ("StagedNetworkPolicy", "StagedGlobalNetworkPolicy")
ENTITY_FIELDS = ("nets", "notNets", "selector", "notSelector", "namespaceSelector")
PROTOCOL_NAMES = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
POLICY_SELECTORS = ("selector", "namespaceSelector", "serviceAccountSelector")
OPERATORS = (*oracle_selectors.OPERATORS, "all", "not", "and", "or")


def policies(world: World) -> list[Document]:
    """The policies of a world."""
    return world.of(*POLICIES)


def rules(world: World) -> Iterator[Document]:
    """All rules, those of profiles included."""
    for document in world.of(*POLICIES, "Profile"):
        for direction in ("ingress", "egress"):
            yield from document["spec"].get(direction, [])


def entities(world: World) -> Iterator[tuple[str, Document]]:
    """All sides of all rules."""
    for rule in rules(world):
        for side in ("source", "destination"):
            if side in rule:
                yield side, rule[side]


def selectors(world: World) -> Iterator[str]:
    """All selector texts."""
    for document in policies(world):
        for name in POLICY_SELECTORS:
            if name in document["spec"]:
                yield document["spec"][name]
    for _, entity in entities(world):
        for name in ("selector", "notSelector", "namespaceSelector"):
            if name in entity:
                yield entity[name]
        if "selector" in entity.get("serviceAccounts", {}):
            yield entity["serviceAccounts"]["selector"]


def features(world: World) -> Counter[str]:
    """How often each feature stands in the documents of a world."""
    seen: Counter[str] = Counter()
    for document in world.documents:
        seen[f"kind {document['kind']}"] += 1
    for document in policies(world):
        spec = document["spec"]
        seen["policy without order" if "order" not in spec else "policy with order"] += 1
        seen[f"types {'+'.join(spec.get('types', ['unset']))}"] += 1
        seen.update(f"policy {name}" for name in (*POLICY_SELECTORS, *STAGES) if name in spec)
    for tier in world.of("Tier"):
        seen[f"tier default action {tier['spec'].get('defaultAction', 'unset')}"] += 1
    for rule in rules(world):
        seen[f"action {rule['action']}"] += 1
        for name in ("protocol", "notProtocol"):
            if name in rule:
                form = "number" if isinstance(rule[name], int) else "name"
                number = protocol_number(rule[name])
                seen[f"{name} {form}"] += 1
                seen[f"{name} {PROTOCOL_NAMES.get(number, 'other')}"] += 1
        for name in ("icmp", "notICMP"):
            if name in rule:
                seen[f"{name} type{' and code' if 'code' in rule[name] else ''}"] += 1
        if "ipVersion" in rule:
            seen[f"ipVersion {rule['ipVersion']}"] += 1
    for side, entity in entities(world):
        for name in ENTITY_FIELDS:
            if name in entity:
                many = name in ("nets", "notNets") and len(entity[name]) > 1
                seen[f"{side} {name}{' (several)' if many else ''}"] += 1
        for name in ("ports", "notPorts"):
            seen.update(f"{side} {name} {port_form(p)}" for p in entity.get(name, []))
            if len(entity.get(name, [])) > 10:
                seen[f"{name} too many for one kernel rule"] += 1
        if "services" in entity:
            seen[f"{side} services"] += 1
        for name in entity.get("serviceAccounts", {}):
            seen[f"{side} serviceAccounts {name}"] += 1
    for text in selectors(world):
        seen.update(f"operator {one}" for one in oracle_selectors.operators(parse(text)))
    return seen


def parse(text: str) -> oracle_selectors.Tree:
    """The oracle's tree."""
    return oracle_selectors.parse(text)


def port_form(entry: object) -> str:
    """number, range or name."""
    return "name" if is_name(entry) else "range" if ":" in str(entry) else "number"


def expected() -> set[str]:
    """Every feature that a run must have seen: the fields that the issue names, by form."""
    found = {f"kind {k}" for k in (*POLICIES, "NetworkSet", "GlobalNetworkSet", "Tier", "Profile")}
    found |= {f"kind {k}" for k in ("HostEndpoint", *STAGED)}
    found |= {"policy with order", "policy without order"}
    found |= {f"policy {name}" for name in STAGES}
    found |= {"source services", "destination services"}
    found |= {f"types {t}" for t in ("unset", "Ingress", "Egress", "Ingress+Egress")}
    found |= {f"policy {name}" for name in POLICY_SELECTORS}
    found |= {f"tier default action {a}" for a in ("unset", "Deny", "Pass")}
    found |= {f"action {a}" for a in ("Allow", "Deny", "Pass", "Log")}
    for name in ("protocol", "notProtocol"):
        found |= {f"{name} {form}" for form in ("number", "name", "TCP", "UDP", "ICMP", "other")}
    found |= {f"{name} type{code}" for name in ("icmp", "notICMP") for code in ("", " and code")}
    found |= {"ipVersion 4", "ipVersion 6", "protocol ICMPv6", "protocol SCTP"}
    for side in ("source", "destination"):
        found |= {f"{side} {name}" for name in ENTITY_FIELDS}
        found |= {f"{side} {name} (several)" for name in ("nets", "notNets")}
        found |= {f"{side} serviceAccounts {name}" for name in ("names", "selector")}
        for name in ("ports", "notPorts"):
            found |= {f"{side} {name} {form}" for form in ("number", "range", "name")}
    found |= {f"{name} too many for one kernel rule" for name in ("ports", "notPorts")}
    return found | {f"operator {one}" for one in (*OPERATORS, "global")}


Edit = Callable[[Document], None]


def each_rule(edit: Edit) -> Callable[[list[Document]], None]:
    """A mutation of every rule."""

    def apply(documents: list[Document]) -> None:
        for rule in rules(World(0, 0, documents)):
            edit(rule)

    return apply


def without(*path: str) -> Callable[[list[Document]], None]:
    """Ignore a field of a rule."""

    def edit(rule: Document) -> None:
        for name in path[:-1]:
            rule = rule.get(name, {})
        rule.pop(path[-1], None)

    return each_rule(edit)


def action(old: str, new: str) -> Callable[[list[Document]], None]:
    """Take one action for another."""

    def edit(rule: Document) -> None:
        if rule["action"] == old:
            rule["action"] = new

    return each_rule(edit)


def port_end(shift: int, end: int) -> Callable[[list[Document]], None]:
    """Move the end of every range."""

    def edit(rule: Document) -> None:
        for side in ("source", "destination"):
            for name in ("ports", "notPorts"):
                ports = rule.get(side, {}).get(name, [])
                for i, entry in enumerate(ports):
                    if port_form(entry) == "range":
                        bounds = [int(part) for part in entry.split(":")]
                        bounds[end] += shift
                        ports[i] = f"{bounds[0]}:{bounds[1]}"

    return each_rule(edit)


def in_kind(kinds: tuple[str, ...], edit: Edit) -> Callable[[list[Document]], None]:
    """A mutation of every resource of some kinds."""

    def apply(documents: list[Document]) -> None:
        for document in documents:
            if document["kind"] in kinds:
                edit(document["spec"])

    return apply


def drop(kinds: tuple[str, ...], *names: str) -> Callable[[list[Document]], None]:
    """Ignore fields of resources."""

    def edit(spec: Document) -> None:
        for name in names:
            spec.pop(name, None)

    return in_kind(kinds, edit)


def enforce_staged(documents: list[Document]) -> None:
    """Take a staged policy for one in force."""
    for document in documents:
        if document["kind"] in STAGED:
            document["kind"] = document["kind"].removeprefix("Staged")


MUTATIONS: dict[str, Callable[[list[Document]], None]] = {
    **{f"{field} ignored": without(field) for field in ("protocol", "notProtocol", "ipVersion")},
    **{f"{field} ignored": without(field) for field in ("icmp", "notICMP")},
    **{f"{field} code ignored": without(field, "code") for field in ("icmp", "notICMP")},
    **{
        f"{side} {field} ignored": without(side, field)
        for side in ("source", "destination")
        for field in (*ENTITY_FIELDS, "ports", "notPorts", "serviceAccounts")
    },
    "Pass is Allow": action("Pass", "Allow"),
    "Pass is Deny": action("Pass", "Deny"),
    "Pass does nothing": action("Pass", "Log"),
    "Log is Allow": action("Log", "Allow"),
    "Deny is Allow": action("Deny", "Allow"),
    "Allow is Deny": action("Allow", "Deny"),
    "range ends one late": port_end(1, 1),
    "range begins one early": port_end(-1, 0),
    "types ignored": in_kind(POLICIES, lambda s: s.update(types=["Ingress", "Egress"])),
    "types never defaulted": in_kind(
        POLICIES, lambda s: s.update(types=s.get("types") or ["Ingress"])
    ),
    "order ignored": drop(POLICIES, "order"),
    "no order means first": in_kind(POLICIES, lambda s: s.setdefault("order", -1000)),
    "tier ignored": drop(POLICIES, "tier"),
    "tier order ignored": drop(("Tier",), "order"),
    "tier default action ignored": drop(("Tier",), "defaultAction"),
    **{f"policy {name} ignored": drop(POLICIES, name) for name in POLICY_SELECTORS},
    "network sets ignored": drop(("NetworkSet",), "nets"),
    "global network sets ignored": drop(("GlobalNetworkSet",), "nets"),
    "profile labels ignored": drop(("Profile",), "labelsToApply"),
    "profile rules ignored": drop(("Profile",), "ingress", "egress"),
    "named ports ignored": drop(("WorkloadEndpoint",), "ports"),
    "source services ignored": without("source", "services"),
    "destination services ignored": without("destination", "services"),
    "host endpoints ignored": drop(("HostEndpoint",), "expectedIPs"),
    "host endpoints have no ports": drop(("HostEndpoint",), "ports"),
    "host policy reaches workloads": drop(POLICIES, "doNotTrack", "preDNAT"),
    "staged policy is enforced": enforce_staged,
    "second profile ignored": in_kind(
        ("WorkloadEndpoint",), lambda s: s.update(profiles=s["profiles"][:1])
    ),
}


def verdicts(
    documents: list[Document], slices: list[Document], flows: Iterable[Flow]
) -> list[tuple[bool, bool]]:
    """(egress, ingress) of each flow."""
    oracle = Oracle(documents, slices)
    return [(oracle.egress(flow).allowed, oracle.ingress(flow).allowed) for flow in flows]


def notice(found: Counter[str], world: World, flows: list[Flow], enough: int) -> None:
    """Add how many verdicts each mutation changes; those that reached `enough` are not tried."""
    truth = verdicts(world.documents, world.slices, flows)

    def note(name: str, documents: list[Document]) -> None:
        mutant = verdicts(documents, world.slices, flows)
        found[name] += sum(a != b for a, b in zip(truth, mutant, strict=True))

    for name, mutate in MUTATIONS.items():
        if found[name] < enough:
            changed = copy.deepcopy(world.documents)
            mutate(changed)
            note(name, changed)
    for operator in oracle_selectors.OPERATORS:
        name = f"operator {operator} is never true"
        if found[name] < enough:
            with mock.patch.dict(oracle_selectors.OPERATORS, {operator: lambda have, want: False}):
                note(name, world.documents)


def table(seen: Counter[str], changed: Counter[str]) -> str:
    """Both figures for people."""
    lines = [f"{'feature':44}{'seen':>8}"]
    lines += [f"{name:44}{seen[name]:8}" for name in sorted(expected() | set(seen))]
    lines += ["", f"{'planted in the documents':44}{'verdicts changed':>18}"]
    lines += [f"{name:44}{changed[name]:18}" for name in sorted(changed)]
    return "\n".join(lines)
