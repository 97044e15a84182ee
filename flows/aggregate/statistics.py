"""Figures by policy or by rule, for a span or for each of its buckets.

Source: projectcalico/calico goldmane/pkg/storage (statistics). A flow counts once for each rule of
its trace, enforced or pending, under what the rule did; what a tier's end did counts for the
policy that triggered it. Live connections are "in" at a destination and "out" at a source, and of
a span those of its newest bucket.

Rules are told apart by policy, action, number and direction. Goldmane puts the number of the
policy in the trace where the API has the number of the rule; here it is the rule's.
"""

from __future__ import annotations

from flows.aggregate.buckets import FULL, LIVE, WIDTH, Bucket, Line
from flows.aggregate.matching import policy_matches
from flows.query import Direction, GroupBy, Series, StatisticKind, StatisticsQuery
from flows.record import Action, Hit, Key, Reporter

Rule = tuple[Hit, Action, int, Direction]
"""The policy as a hit without action and numbers, what it did, its rule, and of which direction."""
Figures = list[int]
"""Allowed in and out, denied in and out, passed in and out."""

PLACE = {Action.ALLOW: 0, Action.DENY: 2, Action.PASS: 4}
_COLUMN = {StatisticKind.PACKETS: 0, StatisticKind.BYTES: 2}


class Statistics:
    """The figures of a query, bucket by bucket, oldest first."""

    def __init__(self, query: StatisticsQuery) -> None:
        self._query = query
        self._rules: dict[Line, tuple[Rule, ...]] = {}
        self._found: dict[Rule, dict[int, Figures]] = {}
        """By rule, or by policy; and by the start of the bucket."""

    def take(self, bucket: Bucket) -> None:
        """Add a bucket."""
        for row, line in enumerate(bucket.lines):
            rules = self._rules.get(line)
            if rules is None:
                rules = self._rules[line] = self._of(line.key)
            if rules:
                figures = self._figures(bucket, row, line.key)
                for rule in rules:
                    self._count(rule, bucket.start, figures)

    def _of(self, key: Key) -> tuple[Rule, ...]:
        rules = {_rule(hit, key.reporter) for hit in (*key.trace.enforced, *key.trace.pending)}
        wanted = self._query.policy
        return tuple(
            rule
            for rule in rules
            if rule[1] in PLACE
            and wanted.action in (Action.UNSPECIFIED, rule[1])
            and policy_matches(wanted, rule[0])
        )

    def _figures(self, bucket: Bucket, row: int, key: Key) -> tuple[int, int]:
        place = row * WIDTH
        if self._query.kind is StatisticKind.LIVE_CONNECTIONS:
            live = bucket.counts[place + LIVE]
            return (0, live) if key.reporter is Reporter.SOURCE else (live, 0)
        place += _COLUMN[self._query.kind]
        return bucket.counts[place], bucket.counts[place + 1]

    def _count(self, rule: Rule, start: int, figures: tuple[int, int]) -> None:
        place = PLACE[rule[1]]
        if self._query.group_by is GroupBy.POLICY:
            rule = (rule[0], Action.UNSPECIFIED, 0, Direction.ANY)
        by_start = self._found.setdefault(rule, {})
        sums = by_start.setdefault(start, [0] * 6)
        for offset, number in enumerate(figures):
            sums[place + offset] = min(sums[place + offset] + number, FULL)

    def series(self) -> tuple[Series, ...]:
        """What was found, by policy and rule."""
        return tuple(self._series(rule) for rule in sorted(self._found, key=_order))

    def _series(self, rule: Rule) -> Series:
        policy, action, number, direction = rule
        by_start = self._found[rule]
        times = tuple(sorted(by_start))
        rows = [by_start[start] for start in times]
        if not self._query.time_series:
            if self._query.kind is StatisticKind.LIVE_CONNECTIONS:
                rows = rows[-1:]
            rows, times = [[min(sum(one), FULL) for one in zip(*rows, strict=True)]], ()
        named = Hit(policy.kind, policy.tier, policy.namespace, policy.name, action, 0, number)
        columns = [tuple(column) for column in zip(*rows, strict=True)]
        kind, by = self._query.kind, self._query.group_by
        allowed_in, allowed_out, denied_in, denied_out, passed_in, passed_out = columns
        return Series(
            named,
            direction,
            by,
            kind,
            allowed_in,
            allowed_out,
            denied_in,
            denied_out,
            passed_in,
            passed_out,
            times,
        )


def _rule(hit: Hit, reporter: Reporter) -> Rule:
    policy = hit.trigger or hit
    direction = Direction.EGRESS if reporter is Reporter.SOURCE else Direction.INGRESS
    plain = Hit(policy.kind, policy.tier, policy.namespace, policy.name, Action.UNSPECIFIED)
    return plain, hit.action, hit.rule_index, direction


def _order(rule: Rule) -> tuple[str, str, str, int, int, int, int]:
    policy, action, number, direction = rule
    return policy.tier, policy.namespace, policy.name, policy.kind, direction, number, action
