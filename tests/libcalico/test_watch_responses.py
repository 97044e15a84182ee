"""Watches whose ids the server chooses: shuffled answers, early events, what a proxy leaves out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.position import Position
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.watch_responses import FIRST_ID, NEAR, Responses, Share
from libcalico.datastore.interface import Compacted, Replaced, Selection
from libcalico.errors import DatastoreUnavailable
from tests.size import examples

HEADER = pb.ResponseHeader(cluster_id=7, raft_term=3, revision=100)
SELECTIONS = [Selection(family) for family in ("Node", "Handle", "IPPool", "Block")]


def created(number: int, header: pb.ResponseHeader = HEADER) -> pb.WatchResponse:
    return pb.WatchResponse(header=header, watch_id=number, created=True)


def event(selection: Selection, revision: int) -> pb.Event:
    path = keys.range_of(selection)[0] + b"a"
    return pb.Event(kv=pb.KeyValue(key=path, mod_revision=revision))


def response(
    number: int, *events: pb.Event, at: int = 0, fragment: bool = False
) -> pb.WatchResponse:
    last = events[-1].kv.mod_revision if events else 0
    header = pb.ResponseHeader(cluster_id=7, raft_term=3, revision=at or last)
    return pb.WatchResponse(header=header, watch_id=number, events=events, fragment=fragment)


def standing(revision: int = 9, first: int = FIRST_ID, count: int = 2) -> Responses:
    stream = Responses(SELECTIONS[:count], revision)
    for number in range(first, first + count):
        stream.add_response(created(number))
    assert not stream.waiting
    return stream


def revisions(shares: list[Share]) -> list[tuple[str, list[int]]]:
    return [
        (share.selection.family, [one.kv.mod_revision for one in share.events]) for share in shares
    ]


@settings(max_examples=examples(500))
@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0, 1, 40, FIRST_ID]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=12),
)
def test_answers_in_any_order_and_early_events_are_those_of_their_selections(
    random: object, first: int, moves: list[tuple[int, int]]
) -> None:
    """Each watch answers once and then tells its events in order; the watches mix as they like."""
    queues: list[list[pb.WatchResponse]] = [[created(first + place)] for place in range(4)]
    sent: list[list[int]] = [[] for _ in SELECTIONS]
    revision = 10
    for place, count in moves:
        part = [event(SELECTIONS[place], revision + step) for step in range(count)]
        sent[place] += [one.kv.mod_revision for one in part]
        revision += count
        queues[place].append(response(first + place, *part))
    stream = Responses(SELECTIONS, 9)
    told: list[list[int]] = [[] for _ in SELECTIONS]
    while any(queues):
        queue = random.choice([one for one in queues if one])  # type: ignore[attr-defined]
        for share in stream.add_response(queue.pop(0)):
            assert not stream.waiting
            assert share.before <= share.after
            told[SELECTIONS.index(share.selection)] += [one.kv.mod_revision for one in share.events]
    assert told == sent
    assert stream.proxied == (first != FIRST_ID)


def test_nothing_is_delivered_before_all_watches_stand() -> None:
    stream = Responses(SELECTIONS[:2], 9)
    assert stream.add_response(created(5)) == []
    assert stream.add_response(response(5, event(SELECTIONS[1], 12))) == []
    assert revisions(stream.add_response(created(2))) == [("Handle", [12])]


def test_the_requests_come_in_the_order_of_the_selections() -> None:
    asked = [one.create_request for one in Responses(SELECTIONS, 9).requests()]
    assert [(one.key, one.range_end) for one in asked] == [keys.range_of(s) for s in SELECTIONS]
    assert [one.watch_id for one in asked] == sorted(one.watch_id for one in asked)
    assert {one.start_revision for one in asked} == {9}


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda: response(FIRST_ID, event(SELECTIONS[1], 12)), "ipam/v2/handle/a"),
        (lambda: response(3, event(SELECTIONS[1], 12)), "ipam/v2/handle/a on watch 3"),
        (lambda: created(FIRST_ID), "once too often"),
        (lambda: created(3), "once too often"),
        (lambda: pb.WatchResponse(watch_id=-1, created=True, canceled=True), "ended the watch"),
    ],
)
def test_what_no_watch_asked_for_ends_the_stream(
    what: Callable[[], pb.WatchResponse], says: str
) -> None:
    with pytest.raises(DatastoreUnavailable, match=says):
        standing().add_response(what())


def test_an_early_event_outside_its_range_ends_the_stream_too() -> None:
    stream = Responses(SELECTIONS[:2], 9)
    stream.add_response(created(1))
    stream.add_response(response(1, event(SELECTIONS[0], 12)))
    with pytest.raises(DatastoreUnavailable, match="nodes/a on the watch of every Handle"):
        stream.add_response(created(0))


def test_a_fragment_waits_with_its_last_revision() -> None:
    stream = standing()
    pieces = [event(SELECTIONS[0], revision) for revision in (12, 13)]
    assert revisions(stream.add_response(response(FIRST_ID, *pieces, fragment=True))) == [
        ("Node", [12])
    ]
    rest = stream.add_response(response(FIRST_ID, event(SELECTIONS[0], 13)))
    assert revisions(rest) == [("Node", [13, 13])]


@pytest.mark.parametrize(("proxied", "count", "lost"), [
    (True, NEAR, True), (True, NEAR - 1, False), (False, NEAR, False),
])  # fmt: skip
def test_much_of_the_past_at_once_ends_a_watch_through_a_proxy(
    proxied: bool, count: int, lost: bool
) -> None:
    first = 0 if proxied else FIRST_ID
    many = [event(SELECTIONS[0], 10 + number) for number in range(count)]
    stream = standing(first=first)
    behind = response(first, *many, at=5000)
    if lost:
        with pytest.raises(Compacted, match="through a proxy"):
            stream.add_response(behind)
    else:
        assert len(stream.add_response(behind)[0].events) == count
    # What is up to date is no sign of anything left out.
    assert stream.proxied == proxied
    assert len(standing(first=first).add_response(response(first, *many))[0].events) == count


def test_a_watch_that_begins_far_behind_is_none_for_a_proxy() -> None:
    stream = Responses(SELECTIONS, 9)
    stream.require_near(pb.ResponseHeader(cluster_id=7, revision=9 + NEAR))
    with pytest.raises(Compacted):
        stream.require_near(pb.ResponseHeader(cluster_id=7, revision=10 + NEAR))


def test_a_header_without_a_cluster_says_nothing() -> None:
    """A proxy answers so in place of etcd: the cluster is to be asked, and none is forgotten."""
    start = Position.of(9, HEADER)
    stream = Responses(SELECTIONS[:1], start)
    stream.add_response(created(0, pb.ResponseHeader(revision=9)))
    assert stream.strange
    position = stream.position(9)
    assert (position.cluster, position.term) == (7, 3)
    stream.agree(HEADER)
    assert not stream.strange


@pytest.mark.parametrize("header", [
    pb.ResponseHeader(cluster_id=8, raft_term=3, revision=100),
    pb.ResponseHeader(cluster_id=7, raft_term=2, revision=100),
    pb.ResponseHeader(cluster_id=7, raft_term=3, revision=8),
])  # fmt: skip
def test_another_history_is_noticed_in_the_middle_of_a_stream(header: pb.ResponseHeader) -> None:
    """A proxy keeps its streams while the etcd behind it is put back to an earlier state."""
    stream = Responses(SELECTIONS[:1], Position.of(9, HEADER))
    stream.add_response(created(0))
    assert not stream.strange
    stream.add_response(pb.WatchResponse(header=header, watch_id=0))
    assert stream.strange
    with pytest.raises(Replaced):
        stream.agree(header)


def test_an_election_during_the_watch_counts_when_the_store_is_put_back_behind_a_proxy() -> None:
    """The watch stands on: elections that a restored store counts anew are those since it began."""
    stream = standing(Position.of(9, HEADER))
    later = pb.ResponseHeader(cluster_id=7, raft_term=5, revision=110)
    stream.add_response(pb.WatchResponse(header=later, watch_id=FIRST_ID))
    restored = pb.ResponseHeader(cluster_id=7, raft_term=4, revision=120)
    stream.add_response(pb.WatchResponse(header=restored, watch_id=FIRST_ID))
    assert stream.strange
    with pytest.raises(Replaced):
        stream.agree(restored)
    stream.agree(pb.ResponseHeader(cluster_id=7, raft_term=5, revision=121))
    assert not stream.strange


def test_of_two_positions_at_one_revision_the_later_term_is_kept() -> None:
    """An election writes nothing: else a store that was put back to before it would pass."""
    early, late = (Position.of(9, pb.ResponseHeader(cluster_id=7, raft_term=t)) for t in (3, 4))
    assert early.newer(late).term == late.newer(early).term == 4
    assert late.newer(Position.of(10, pb.ResponseHeader(cluster_id=7, raft_term=3))) == 10
