"""Hints: the values of one field among the flows that a filter lets through.

Source: projectcalico/calico goldmane/pkg/storage (filter hints). Profiles are no policy that an
operator could filter by, so they give no hint; the end of a tier gives those of its trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flows.aggregate.buckets import Bucket, Line
from flows.aggregate.listing import Chosen
from flows.aggregate.span import paged
from flows.query import HintKind, HintQuery, Hints
from flows.record import NONE, Hit, Key, PolicyKind
from flows.written import POLICY_KINDS
from libcalico.errors import InvalidValue


class Values:
    """The values of a span, bucket by bucket. Raises InvalidValue for a field without hints."""

    def __init__(self, query: HintQuery) -> None:
        if query.kind not in READ:
            rule = ", ".join(f"{one.value} ({one.name})" for one in READ)
            raise InvalidValue("type", int(query.kind), rule)
        self._read = READ[query.kind]
        self._query = query
        self._chosen = Chosen(query.filter)
        self._read_before: set[Line] = set()
        self._values: set[str] = set()

    def take(self, bucket: Bucket) -> None:
        """Add a bucket."""
        for line in bucket.lines:
            if line not in self._read_before:
                self._read_before.add(line)
                if line in self._chosen:
                    self._values.update(self._read(line.key))

    def page(self) -> Hints:
        """The page that was asked for."""
        found = sorted(self._values)
        chosen, pages = paged(len(found), self._query.page, self._query.page_size)
        return Hints(tuple(found[chosen]), len(found), pages)


def _policies(read: Callable[[Hit], str]) -> Callable[[Key], Iterable[str]]:
    def values(key: Key) -> Iterable[str]:
        for hit in (*key.trace.enforced, *key.trace.pending):
            if hit.kind is not PolicyKind.PROFILE:
                yield read(hit.trigger or hit)

    return values


READ: dict[HintKind, Callable[[Key], Iterable[str]]] = {
    HintKind.DESTINATION_NAME: lambda key: (key.destination.name,),
    HintKind.SOURCE_NAME: lambda key: (key.source.name,),
    HintKind.DESTINATION_NAMESPACE: lambda key: (key.destination.namespace or NONE,),
    HintKind.SOURCE_NAMESPACE: lambda key: (key.source.namespace or NONE,),
    HintKind.POLICY_TIER: _policies(lambda hit: hit.tier),
    HintKind.POLICY_NAME: _policies(lambda hit: hit.name),
    HintKind.POLICY_KIND: _policies(lambda hit: POLICY_KINDS[hit.kind]),
    HintKind.POLICY_NAMESPACE: _policies(lambda hit: hit.namespace),
}
