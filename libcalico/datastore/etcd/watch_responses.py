"""What a watch stream of etcd has told, as shares of events: pure (DS-3).

The server names the watches. Members of etcd take the ids that a request asks for, and
`etcd grpc-proxy` gives its own; both count upwards in the order of the requests. Answers to the
requests may come in any order, and events before the last of them: these wait until all watches
stand. An event that its watch did not ask for ends the stream, so no error about ids loses one.

Problem: a proxy joins watches of one range, and may leave out what a watch that begins far behind
has not been sent yet (measured with etcd 3.4.23: of 3500 changes it sent the first 1000). etcd
sends at most that many revisions of the past at once.

Invariant ETCD-6: through a proxy no watch begins far behind, or goes on after much of the past came
at once; its reader lists anew or asks etcd itself (`FarBehind`).

Tested in tests/libcalico/test_watch_responses.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.entries import entry_of
from libcalico.datastore.etcd.position import Position, foreign, replaced
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import Compacted, Entry, Event, Replaced, Selection
from libcalico.errors import DatastoreUnavailable

FIRST_ID = 1_000_001
"""Of the ids that are asked for: no proxy counts as far on one stream."""
NEAR = 500
"""Revisions that a watch on a proxy may begin behind; half of what etcd sends at once."""


class FarBehind(Compacted):
    """A proxy might leave out some of what came after `revision`, as etcd itself would not.

    `present` is the header that says so.
    """

    def __init__(self, revision: int, present: pb.ResponseHeader) -> None:
        self.present = present
        super().__init__(
            f"etcd is at revision {present.revision}, too far from {revision}"
            " for a watch through a proxy"
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Events of one selection; the stream is complete to `before`, with them to `after`."""

    selection: Selection
    events: list[pb.Event]
    before: int
    after: int


class Responses:
    """What has been received so far. Pure: responses in, shares out.

    `waiting`: not all watches stand. `proxied`: what answers is no member of etcd. `strange`: a
    member is on another history than the revision where the watch begins, or it lags, or a proxy
    did not say.
    """

    def __init__(self, selections: Sequence[Selection], revision: int) -> None:
        self._selections = selections
        self._ranges = [keys.range_of(one) for one in selections]
        self._start = revision
        self._positions = [revision] * len(selections)
        self._created: set[int] = set()
        self._places: dict[int, int] = {}
        self._early: list[pb.WatchResponse] = []
        self._fragments: dict[int, list[pb.Event]] = {}
        self.strange = self.proxied = False
        self._header = Position.header_of(revision)

    @property
    def waiting(self) -> bool:
        """Whether a watch does not stand yet."""
        return len(self._created) < len(self._selections)

    def position(self, revision: int) -> Position:
        """A revision in the history of the last response that named one."""
        return Position.of(revision, self._header)

    def agree(self, present: pb.ResponseHeader) -> None:
        """Compare with the cluster's present state, and be strange no more. Raises Replaced."""
        start = self.position(self._start)
        if foreign(start, present):
            raise Replaced(replaced(start, present))
        self._header, self.strange = present, False

    def require_near(self, present: pb.ResponseHeader) -> None:
        """Raise Compacted where the watch begins too far behind the present for a proxy."""
        self.agree(present)
        if present.revision - self._start > NEAR:
            raise FarBehind(self._start, present)

    def requests(self) -> list[pb.WatchRequest]:
        """The requests that create the watches, in the order of the selections."""
        return [
            pb.WatchRequest(
                create_request=pb.WatchCreateRequest(
                    key=first,
                    range_end=end,
                    start_revision=max(1, self._start),  # 0 would be from now on
                    progress_notify=True,
                    watch_id=FIRST_ID + place,
                    fragment=True,
                )
            )
            for place, (first, end) in enumerate(self._ranges)
        ]

    def add_response(self, response: pb.WatchResponse) -> list[Share]:
        """The shares that a response completes.

        Raises Compacted, and DatastoreUnavailable where the watch must begin again.
        """
        if response.compact_revision:
            raise Compacted(f"etcd has compacted what came after revision {self._start}")
        if response.canceled:
            raise DatastoreUnavailable(f"etcd ended the watch: {response.cancel_reason}")
        self._note(response)
        if response.created:
            return self._stand(response.watch_id)
        if self.waiting:
            self._early.append(response)
            return []
        return self._taken(response)

    def _note(self, response: pb.WatchResponse) -> None:
        """Compare the histories. A proxy names none where it answers in place of etcd."""
        header = response.header
        if not header.cluster_id:
            self.strange |= response.created
        elif foreign(self.position(self._start), header):
            self.strange = True
        else:
            self._header = header  # with the elections since the watch began

    def _stand(self, number: int) -> list[Share]:
        """Note that a watch stands; after the last one, the shares of what came early."""
        if number in self._created or not self.waiting:
            raise DatastoreUnavailable(f"etcd answered with watch {number} once too often")
        self._created.add(number)
        if self.waiting:
            return []
        ordered = sorted(self._created)
        self._places = {one: place for place, one in enumerate(ordered)}
        self.proxied = ordered != [FIRST_ID + place for place in range(len(ordered))]
        early, self._early = self._early, []
        return [share for response in early for share in self._taken(response)]

    def _taken(self, response: pb.WatchResponse) -> list[Share]:
        """The share that a response to a watch that stands completes, if any."""
        place = self._places.get(response.watch_id)
        if place is None:
            if not response.events:
                return []
            raise _astray(response.events[0], f"watch {response.watch_id}, which was not created")
        first, end = self._ranges[place]
        for one in response.events:
            if not first <= one.kv.key < end:
                raise _astray(one, f"the watch of every {self._selections[place].family}")
        if not response.events and not response.fragment and place not in self._fragments:
            self._positions[place] = max(self._positions[place], response.header.revision)
            after = self.position(min(self._positions))
            return [Share(self._selections[place], [], after, after)]
        self._require_all(response)
        return self._completed(place, response)

    def _completed(self, place: int, response: pb.WatchResponse) -> list[Share]:
        events = self._fragments.pop(place, [])
        events += (one for one in response.events if one.kv.mod_revision > self._start)
        if events and response.fragment:
            # The revision at the end may go on in the next fragment: it waits for the rest.
            last = events[-1].kv.mod_revision
            cut = next(at for at, one in enumerate(events) if one.kv.mod_revision == last)
            events, self._fragments[place] = events[:cut], events[cut:]
        if not events:
            return []
        before = self.position(min(self._positions))
        self._positions[place] = events[-1].kv.mod_revision
        after = self.position(min(self._positions))
        return [Share(self._selections[place], events, before, after)]

    def _require_all(self, response: pb.WatchResponse) -> None:
        """Raise Compacted for a response after which a proxy may leave something out."""
        if not self.proxied or len(response.events) < NEAR:
            return
        revisions = {one.kv.mod_revision for one in response.events}
        if len(revisions) >= NEAR and max(revisions) < response.header.revision:
            raise FarBehind(max(revisions), response.header)


def _astray(event: pb.Event, where: str) -> DatastoreUnavailable:
    key = event.kv.key.decode(errors="replace")
    return DatastoreUnavailable(f"etcd sent an event of {key} on {where}")


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
