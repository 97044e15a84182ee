"""Messages by hand say what the generated stubs of etcd's say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.etcd import messages
from libcalico.datastore.etcd.proto import etcd_pb2 as pb

INTS = st.integers(0, 2**63 - 1)
BYTES = st.binary(max_size=300)
KVS = st.builds(
    pb.KeyValue,
    key=BYTES,
    create_revision=INTS,
    mod_revision=INTS,
    version=INTS,
    value=BYTES,
    lease=INTS,
)
HEADERS = st.builds(
    pb.ResponseHeader, cluster_id=st.integers(0, 2**64 - 1), member_id=INTS, revision=INTS
)
RANGES = st.builds(
    pb.RangeResponse,
    header=HEADERS,
    kvs=st.lists(KVS, max_size=4),
    more=st.booleans(),
    count=INTS,
)


@given(BYTES, BYTES, INTS, INTS)
def test_a_range_that_is_asked_for(key: bytes, end: bytes, limit: int, revision: int) -> None:
    ours = messages.range_request(key, end, limit, revision)
    theirs = pb.RangeRequest(key=key, range_end=end, limit=limit, revision=revision)
    assert ours == theirs.SerializeToString()


@given(st.binary(min_size=1), st.binary(min_size=1), INTS)
def test_a_transaction(key: bytes, value: bytes, revision: int) -> None:
    ours = messages.transaction(
        [messages.comparing(key, revision), messages.comparing(key, 0)],
        [messages.putting(key, value), messages.deleting(key)],
        [messages.reading(key, revision)],
    )
    absent = pb.Compare(key=key, target=pb.Compare.VERSION, version=0)
    at = pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=revision)
    theirs = pb.TxnRequest(
        compare=[at if revision else absent, absent],
        success=[
            pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)),
            pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key)),
        ],
        failure=[pb.RequestOp(request_range=pb.RangeRequest(key=key, revision=revision))],
    )
    assert pb.TxnRequest.FromString(ours) == theirs


def same(ours: messages.Range, theirs: pb.RangeResponse) -> bool:
    stored = [messages.Stored(kv.key, kv.value, kv.mod_revision) for kv in theirs.kvs]
    head = theirs.header.revision
    return ours == messages.Range(stored, theirs.more, theirs.count, head)


@given(RANGES)
def test_a_range_that_is_answered(theirs: pb.RangeResponse) -> None:
    assert same(messages.range_of(theirs.SerializeToString()), theirs)


@given(st.lists(RANGES, max_size=3), st.booleans(), HEADERS)
def test_the_outcome_of_a_transaction(
    ranges: list[pb.RangeResponse], succeeded: bool, header: pb.ResponseHeader
) -> None:
    theirs = pb.TxnResponse(
        header=header,
        succeeded=succeeded,
        responses=[
            pb.ResponseOp(response_put=pb.PutResponse(header=header)),
            *(pb.ResponseOp(response_range=one) for one in ranges),
        ],
    )
    ours = messages.outcome_of(theirs.SerializeToString())
    assert (ours.succeeded, ours.revision) == (succeeded, header.revision)
    assert len(ours.ranges) == len(ranges)
    assert all(same(*pair) for pair in zip(ours.ranges, ranges, strict=True))


@given(st.binary(max_size=60))
def test_what_is_no_message_raises_one_of_two(raw: bytes) -> None:
    for read in (messages.range_of, messages.outcome_of):
        try:
            read(raw)
        except (ValueError, IndexError):
            pass


def test_a_message_that_is_cut_short() -> None:
    whole = pb.RangeResponse(kvs=[pb.KeyValue(key=b"k", value=b"v" * 200)]).SerializeToString()
    for length in range(1, len(whole)):
        with pytest.raises((ValueError, IndexError)):
            messages.range_of(whole[:length])


def test_fields_that_nobody_reads_are_passed_over() -> None:
    raw = pb.RangeResponse(count=3).SerializeToString()
    unknown = b"\x79" + b"8" * 8 + b"\x7d" + b"4" * 4 + b"\x82\x01\x02ab"
    assert messages.range_of(unknown + raw).total == 3
