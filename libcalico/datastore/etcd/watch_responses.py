"""What a watch stream of etcd has told, as shares of events: pure (DS-3).

Tested in tests/libcalico/test_syncer_model.py and test_etcd_store.py there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.entries import entry_of
from libcalico.datastore.etcd.position import Position, foreign
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import Compacted, Entry, Event, Selection
from libcalico.errors import DatastoreUnavailable


@dataclass(frozen=True, slots=True)
class Share:
    """Events of one selection; the stream is complete to `before`, with them to `after`."""

    selection: Selection
    events: list[pb.Event]
    before: int
    after: int


class Responses:
    """What has been received so far. Pure: responses in, shares out.

    `strange`: a member is on another history than the revision where the watch begins, or it lags.
    """

    def __init__(self, selections: Sequence[Selection], revision: int) -> None:
        self._selections = selections
        self._start = revision
        self._positions = dict.fromkeys(range(1, len(selections) + 1), revision)
        self._fragments: dict[int, list[pb.Event]] = {}
        self.waiting = set(self._positions)
        self.strange = False
        self._header = pb.ResponseHeader()

    def position(self, revision: int) -> Position:
        """A revision in the history of the last response."""
        return Position.of(revision, self._header)

    def requests(self) -> list[pb.WatchRequest]:
        """The requests that create the watches; their ids count from 1."""
        made = []
        for number, selection in enumerate(self._selections, 1):
            first, end = keys.range_of(selection)
            made.append(
                pb.WatchRequest(
                    create_request=pb.WatchCreateRequest(
                        key=first,
                        range_end=end,
                        start_revision=max(1, self._start),  # 0 would be from now on
                        progress_notify=True,
                        watch_id=number,
                        fragment=True,
                    )
                )
            )
        return made

    def add_response(self, response: pb.WatchResponse) -> list[Share]:
        """The share that a response completes, if any."""
        number, self._header = response.watch_id, response.header
        if response.compact_revision:
            raise Compacted(f"etcd has compacted what came after revision {self._start}")
        if response.canceled:
            raise DatastoreUnavailable(f"etcd ended the watch: {response.cancel_reason}")
        if response.created:
            self.strange |= foreign(self._start, response.header)
            self.waiting.discard(number)
            return []
        if number not in self._positions:
            return []
        if not response.events and not response.fragment and number not in self._fragments:
            self._positions[number] = max(self._positions[number], response.header.revision)
            after = self.position(min(self._positions.values()))
            return [Share(self._selections[number - 1], [], after, after)]
        events = self._fragments.pop(number, [])
        events += (one for one in response.events if one.kv.mod_revision > self._start)
        if events and response.fragment:
            # The revision at the end may go on in the next fragment: it waits for the rest.
            last = events[-1].kv.mod_revision
            cut = next(at for at, one in enumerate(events) if one.kv.mod_revision == last)
            events, self._fragments[number] = events[:cut], events[cut:]
        if not events:
            return []
        before = self.position(min(self._positions.values()))
        self._positions[number] = events[-1].kv.mod_revision
        after = self.position(min(self._positions.values()))
        return [Share(self._selections[number - 1], events, before, after)]


def event_of(selection: Selection, raw: pb.Event) -> Event | None:
    """The event of the interface for etcd's; None for a key outside the selection."""
    key = keys.key_of_path(raw.kv.key.decode(errors="replace"))
    if key is None or not keys.selects(selection, key):
        return None
    revision = raw.kv.mod_revision
    if raw.type == pb.Event.DELETE:
        return Event(key, None, revision)
    if selection.raw:
        return Event(key, Entry(key, None, revision, raw.kv.value), revision)
    entry, broken = entry_of(key, raw.kv.value, revision)
    return Event(key, entry, revision, broken=broken)
