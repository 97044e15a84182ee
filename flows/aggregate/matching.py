"""Which keys a filter lets through.

Source: projectcalico/calico goldmane/pkg/types (filters). Alternatives within a field, all fields
together. Names and namespaces match as Whisker shows them, too: PUBLIC NETWORK is "pub".

Beyond Goldmane: a hit at the end of a tier matches by the policy that triggered it, too, so that
the name of a policy finds what its tier denied.
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


def _traced(wanted: tuple[PolicyMatch, ...], key: Key) -> bool:
    hits = (*key.trace.enforced, *key.trace.pending)
    return any(hit_matches(one, hit) for one in wanted for hit in hits)


def _pending(wanted: tuple[Action, ...], key: Key) -> bool:
    return any(hit.action in wanted for hit in key.trace.pending)


def hit_matches(wanted: PolicyMatch, hit: Hit) -> bool:
    """Whether a hit, or the policy that triggered it, has everything that is wanted."""
    if wanted.action not in (Action.UNSPECIFIED, hit.action):
        return False
    return policy_matches(wanted, hit) or (
        hit.trigger is not None and policy_matches(wanted, hit.trigger)
    )


def policy_matches(wanted: PolicyMatch, policy: Hit) -> bool:
    """Whether kind, tier, namespace and name are as wanted; the action is not looked at."""
    return (
        wanted.kind in (PolicyKind.UNSPECIFIED, policy.kind)
        and _optional(wanted.tier, policy.tier)
        and _optional(wanted.namespace, policy.namespace)
        and _optional(wanted.name, policy.name)
    )


def _optional(text: Text, value: str) -> bool:
    return not text.value or _text(text, value)
