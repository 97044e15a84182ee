"""The workloads of a namespace in groups, each with a selector that matches its members alone.

Where labels cannot tell two apart they are one group, and so is a pod without flows that no
selector can leave out: what selects it has to allow what it does.

Invariant:
  REC-1  No endpoint of the namespace is in two groups, and a group's selector matches exactly
         its members.
Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from felix.explain.recommend.choose import Choice, choose
from felix.explain.recommend.crowd import Crowd, Entry
from flows.record import End


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that one policy selects, and the ends of flows that they are."""

    name: str
    ends: frozenset[End]
    members: tuple[Entry, ...]
    choice: Choice


def groups_of(ends: Iterable[End], crowd: Crowd, namespace: str) -> list[Group]:
    """The groups of these ends."""
    parts: list[tuple[set[End], set[Entry]]] = []
    waiting = [({end}, set(crowd.of(end))) for end in sorted(ends, key=lambda end: end.name)]
    while waiting:
        own, members = waiting.pop(0)
        choice = choose(_labels(members), crowd.beside(members, namespace))
        taken = [e for e in crowd.by_namespace.get(namespace, ()) if choice.matches(e.values())]
        merged = members | set(taken)
        overlapping = [part for part in parts if part[1] & merged or _same(choice, part[1])]
        if merged == members and not overlapping:
            parts.append((own, members))
            continue
        for part in overlapping:
            parts.remove(part)
            own, merged = own | part[0], merged | part[1]
        waiting.insert(0, (own, merged))
    groups = []
    for own, members in parts:
        ordered = _ordered(members)
        choice = choose(_labels(ordered), crowd.beside(members, namespace))
        groups.append(Group(_name(own), frozenset(own), tuple(ordered), choice))
    return sorted(groups, key=lambda group: group.name)


def _same(choice: Choice, members: set[Entry]) -> bool:
    """Whether pods that are gone would be members of another group."""
    return any(entry.key is None and choice.matches(entry.values()) for entry in members)


def _labels(members: Iterable[Entry]) -> list[Mapping[str, str]]:
    return [dict(labels) for labels in sorted({entry.labels for entry in members})]


def _ordered(members: Iterable[Entry]) -> list[Entry]:
    return sorted(members, key=lambda entry: (entry.title, entry.labels))


def _name(ends: Iterable[End]) -> str:
    """A name for people: that of its first end, without what a controller added."""
    first = min(end.name for end in ends)
    words = first.removesuffix("*").strip("-").split("-")
    if first.endswith("*") and len(words) > 1 and any(c.isdigit() for c in words[-1]):
        words = words[:-1]
    return "-".join(words)
