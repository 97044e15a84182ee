"""Which keys a filter lets through.

Source: https://github.com/projectcalico/calico goldmane/pkg/types (filters).

Alternatives within a field, all fields together. Names and namespaces match as Whisker shows
them, too: PUBLIC NETWORK is "pub".

Beyond Goldmane: a hit at the end of a tier matches by the policy that triggered it, too, so that
the name of a policy finds what its tier denied.
Tested in tests/flows/test_store.py.
"""

from __future__ import annotations

from flows.query import Filter, PolicyMatch, Text
from flows.record import NONE, PRIVATE, PUBLIC, Action, End, Hit, Key, PolicyKind, Reporter

SHOWN = {PUBLIC: "PUBLIC NETWORK", PRIVATE: "PRIVATE NETWORK"}


def matches(chosen: Filter, key: Key) -> bool:
    """Whether the filter lets the key through."""
    source, destination = key.source, key.destination
    return (
        _any(chosen.source_names, _names(source))
        and _any(chosen.destination_names, _names(destination))
        and _any(chosen.source_namespaces, (source.namespace or NONE,))
        and _any(chosen.destination_namespaces, (destination.namespace or NONE,))
        and _any(chosen.protocols, (key.protocol,))
        and (not chosen.ports or key.port in chosen.ports)
        and (not chosen.actions or key.action in chosen.actions)
        and chosen.reporter in (Reporter.UNSPECIFIED, key.reporter)
        and (not chosen.policies or _traced(chosen.policies, key))
        and (not chosen.pending_actions or _pending(chosen.pending_actions, key))
    )


def _names(end: End) -> tuple[str, ...]:
    shown = SHOWN.get(end.name)
    return (end.name,) if shown is None else (end.name, shown)


def _any(texts: tuple[Text, ...], values: tuple[str, ...]) -> bool:
    return not texts or any(_text(text, value) for text in texts for value in values)


def _text(text: Text, value: str) -> bool:
    return text.value in value if text.fuzzy else text.value == value


def _traced(match: tuple[PolicyMatch, ...], key: Key) -> bool:
    hits = (*key.trace.enforced, *key.trace.pending)
    return any(hit_matches(one, hit) for one in match for hit in hits)


def _pending(match: tuple[Action, ...], key: Key) -> bool:
    return any(hit.action in match for hit in key.trace.pending)


def hit_matches(match: PolicyMatch, hit: Hit) -> bool:
    """Whether a hit, or the policy that triggered it, has everything that is match."""
    if match.action not in (Action.UNSPECIFIED, hit.action):
        return False
    return policy_matches(match, hit) or (
        hit.trigger is not None and policy_matches(match, hit.trigger)
    )


def policy_matches(match: PolicyMatch, policy: Hit) -> bool:
    """Whether kind, tier, namespace and name are as match; the action is not looked at."""
    return (
        match.kind in (PolicyKind.UNSPECIFIED, policy.kind)
        and _optional(match.tier, policy.tier)
        and _optional(match.namespace, policy.namespace)
        and _optional(match.name, policy.name)
    )


def _optional(text: Text, value: str) -> bool:
    return not text.value or _text(text, value)
