"""Flows by lot, for tests of every part of the room."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from flows.record import (
    INTERVAL,
    Action,
    Counts,
    End,
    EndKind,
    Flow,
    Hit,
    Key,
    PolicyKind,
    Reporter,
    Service,
    Trace,
)

NAMES = ("web-*", "db-*", "pub", "pvt", "node-1", "office")
NAMESPACES = ("", "shop", "shop-test", "kube-system")
TIERS = ("default", "security")
LABELS = ("app=web", "app=db", "tier=front", "version=1")


T = TypeVar("T")


def _one(*values: T) -> st.SearchStrategy[T]:
    return st.sampled_from(values)


ends = st.builds(End, st.sampled_from(list(EndKind)[1:]), _one(*NAMES), _one(*NAMESPACES))
actions = _one(Action.ALLOW, Action.DENY, Action.PASS)
kinds = st.sampled_from([one for one in PolicyKind if one not in (0, PolicyKind.END_OF_TIER)])
plain_hits = st.builds(
    Hit,
    kinds,
    _one(*TIERS),
    _one("", "shop"),
    _one("allow-web", "allow-db", "locked"),
    actions,
    st.integers(0, 3),
    st.integers(-1, 4),
)
ends_of_tier = st.builds(
    lambda trigger, action: Hit(
        PolicyKind.END_OF_TIER, trigger.tier, "", "", action, trigger.policy_index, -1, trigger
    ),
    plain_hits,
    actions,
)
hits = st.one_of(plain_hits, ends_of_tier)
in_order = st.lists(hits, max_size=2).map(
    lambda some: tuple(sorted(some, key=lambda hit: hit.policy_index))
)
traces = st.builds(Trace, in_order, in_order)
services = st.one_of(st.just(Service()), st.builds(Service, _one("web", "db"), _one("shop"),
                                                   _one("", "http"), _one(80, 443)))  # fmt: skip
keys = st.builds(
    Key,
    ends,
    ends,
    _one(0, 53, 80, 443),
    _one("tcp", "udp", "icmp"),
    _one(Reporter.SOURCE, Reporter.DESTINATION),
    _one(Action.ALLOW, Action.DENY),
    services,
    traces,
)
counts = st.builds(Counts, *(st.integers(0, 9),) * 7)
label_sets = st.sets(st.sampled_from(LABELS)).map(lambda labels: tuple(sorted(labels)))


def flows(first: int, buckets: int) -> st.SearchStrategy[Flow]:
    """Flows of this many intervals from `first` on, each of one interval."""
    starts = st.integers(0, buckets - 1).map(lambda number: first + number * INTERVAL)
    return st.builds(
        lambda key, start, count, source, destination: Flow(
            key, start, start + INTERVAL, count, source, destination
        ),
        keys,
        starts,
        counts,
        label_sets,
        label_sets,
    )
