"""ETCD-1: what may have happened is not sent again, unless guards make the second one fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.connection import FREQUENT, Connection
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import ABSENT, Change, Check, CommitConflict, Delete, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Handle, HandleKey
from tests.libcalico.test_etcd_limits import failure

LOST = failure(grpc.StatusCode.UNAVAILABLE, "Socket closed")
LATE = failure(grpc.StatusCode.DEADLINE_EXCEEDED, "")
REFUSED = failure(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
DONE = pb.TxnResponse(succeeded=True, header=pb.ResponseHeader(revision=7))
CONFLICT = pb.TxnResponse(succeeded=False)
PUT = Put(HandleKey("h"), Handle({"10.0.0.0/26": 1}))
CREATE = Put(HandleKey("g"), Handle({"10.0.0.0/26": 1}), ABSENT)


class Member:
    """An endpoint that answers as told, one answer after another. `short`: the way of express."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.sent, self.short = list(answers), 0, 0
        self.endpoint, self.streams = "e1", None
        self.express = SimpleNamespace(ready=True, call=self._at_once)

    async def ready(self, _share: float) -> None:
        return None

    async def txn(self, *_: Any, **__: Any) -> Any:
        self.sent += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _at_once(self, *_: Any) -> bytes:
        self.short += 1
        return bytes(DONE.SerializeToString())


class Store(EtcdDatastore):
    """The real store on such a member."""

    def __init__(self, member: Member) -> None:
        config = DatastoreConfig(etcd_endpoints="http://127.0.0.1:1")
        super().__init__(config)
        self._connection = Connection(config)
        self._connection._links = cast("Any", [member])


def commit(member: Member, *changes: Change) -> int:
    return asyncio.run(Store(member).commit(changes))


@pytest.mark.parametrize("doubt", [LOST, LATE])
@pytest.mark.parametrize("changes", [[PUT], [Delete(PUT.key)], [PUT, CREATE]])
def test_a_write_without_guards_is_sent_once(
    doubt: grpc.aio.AioRpcError, changes: list[Change]
) -> None:
    member = Member(doubt, DONE)
    with pytest.raises(DatastoreUnavailable, match="may or may not have happened"):
        commit(member, *changes)
    assert member.sent == 1


@pytest.mark.parametrize("doubt", [LOST, LATE])
def test_a_guarded_write_is_sent_again_and_its_conflict_is_no_verdict(
    doubt: grpc.aio.AioRpcError,
) -> None:
    member = Member(doubt, DONE)
    assert commit(member, CREATE, Check(PUT.key, 3)) == 7
    assert member.sent == 2
    with pytest.raises(DatastoreUnavailable, match="may or may not have happened"):
        commit(Member(doubt, CONFLICT), CREATE)  # the first one may be what it conflicts with
    with pytest.raises(CommitConflict):
        commit(Member(pb.TxnResponse(responses=[pb.ResponseOp(response_range={})])), CREATE)


def test_what_was_turned_away_is_sent_again() -> None:
    assert commit(Member(REFUSED, DONE), PUT) == 7


def test_only_guarded_writes_go_the_short_way() -> None:
    """Its lost answers are asked for again."""

    async def story() -> None:
        member = Member(*[DONE] * 20)
        store = Store(member)
        for _ in range(2 * FREQUENT):
            await store.commit([PUT, CREATE])
        assert not member.short
        for _ in range(2 * FREQUENT):
            await store.commit([CREATE])
        assert member.short == FREQUENT

    asyncio.run(story())
