"""What a client asks of the aggregator, and what it gets, as values.

Times are seconds since 1970; a negative one counts from the aggregator's now. 0 is the oldest
there is as a start (of a stream: now), and now as an end. Covered by tests/flows/test_messages.py.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from flows.record import Action, Flow, Hit, PolicyKind, Reporter


class SortBy(IntEnum):
    """The order of a list; TIME is the newest first, the others are ascending."""

    TIME = 0
    DESTINATION_NAME = 1
    DESTINATION_NAMESPACE = 2
    DESTINATION_KIND = 3
    SOURCE_NAME = 4
    SOURCE_NAMESPACE = 5
    SOURCE_KIND = 6


class HintKind(IntEnum):
    """Of which field hints are wanted."""

    UNSPECIFIED = 0
    DESTINATION_NAME = 1
    SOURCE_NAME = 2
    DESTINATION_NAMESPACE = 3
    SOURCE_NAMESPACE = 4
    POLICY_TIER = 5
    POLICY_NAME = 6
    POLICY_KIND = 7
    POLICY_NAMESPACE = 8


class StatisticKind(IntEnum):
    """What is counted."""

    PACKETS = 0
    BYTES = 1
    LIVE_CONNECTIONS = 2


class GroupBy(IntEnum):
    """Whether rules of a policy are counted together."""

    POLICY = 0
    RULE = 1


class Direction(IntEnum):
    """The rules that a series of figures is of."""

    ANY = 0
    INGRESS = 1
    EGRESS = 2


class Text(msgspec.Struct, frozen=True):
    """A value to match: equal, or contained (`fuzzy`)."""

    value: str = ""
    fuzzy: bool = False


class PolicyMatch(msgspec.Struct, frozen=True):
    """A hit with all of these; an empty text or UNSPECIFIED accepts everything."""

    kind: PolicyKind = PolicyKind.UNSPECIFIED
    tier: Text = Text()
    namespace: Text = Text()
    name: Text = Text()
    action: Action = Action.UNSPECIFIED


class Filter(msgspec.Struct, frozen=True):
    """Alternatives within a field, all fields together; an empty field accepts everything."""

    source_names: tuple[Text, ...] = ()
    source_namespaces: tuple[Text, ...] = ()
    destination_names: tuple[Text, ...] = ()
    destination_namespaces: tuple[Text, ...] = ()
    protocols: tuple[Text, ...] = ()
    ports: tuple[int, ...] = ()
    actions: tuple[Action, ...] = ()
    policies: tuple[PolicyMatch, ...] = ()
    reporter: Reporter = Reporter.UNSPECIFIED
    pending_actions: tuple[Action, ...] = ()


class FlowQuery(msgspec.Struct, frozen=True):
    """A list of flows, each key once for the whole span; `page` counts from 0, a `page_size` of 0
    is everything."""

    start: int = 0
    end: int = 0
    filter: Filter = Filter()
    sort: tuple[SortBy, ...] = ()
    page: int = 0
    page_size: int = 0


class HintQuery(msgspec.Struct, frozen=True):
    """Values that a filter could name, among flows that `filter` lets through."""

    kind: HintKind
    start: int = 0
    end: int = 0
    filter: Filter = Filter()
    page: int = 0
    page_size: int = 0


class StatisticsQuery(msgspec.Struct, frozen=True):
    """Figures by policy or by rule; with `time_series` one for each bucket."""

    kind: StatisticKind = StatisticKind.PACKETS
    group_by: GroupBy = GroupBy.POLICY
    start: int = 0
    end: int = 0
    policy: PolicyMatch = PolicyMatch()
    time_series: bool = False


class Seen(msgspec.Struct, frozen=True):
    """A flow, with a number for its key that holds as long as the aggregator lives."""

    id: int
    flow: Flow


class Listing(msgspec.Struct, frozen=True):
    """A page of flows; totals are of all pages."""

    flows: tuple[Seen, ...]
    total: int
    pages: int


class Hints(msgspec.Struct, frozen=True):
    """A page of values, sorted; totals are of all pages."""

    values: tuple[str, ...]
    total: int
    pages: int


class Series(msgspec.Struct, frozen=True):
    """Figures of a policy, or of one rule; `times` only where a time series was asked for."""

    policy: Hit
    direction: Direction
    group_by: GroupBy
    kind: StatisticKind
    allowed_in: tuple[int, ...] = ()
    allowed_out: tuple[int, ...] = ()
    denied_in: tuple[int, ...] = ()
    denied_out: tuple[int, ...] = ()
    passed_in: tuple[int, ...] = ()
    passed_out: tuple[int, ...] = ()
    times: tuple[int, ...] = ()
