"""What etcd and gRPC say when something fails, and what it means for a caller.

The texts are those of etcd's `rpctypes` (api/v3rpc/rpctypes/error.go); the codes alone do not
tell a lost leader from a lost answer. What is not known is taken as "it may have happened"
(ETCD-1). Pure; tested in tests/libcalico/test_etcd_limits.py.
"""

from __future__ import annotations

import grpc
import grpc.aio

from libcalico.datastore.interface import Compacted, LeaseEnded
from libcalico.errors import (
    DatastoreError,
    DatastoreFull,
    DatastoreUnavailable,
    LoginFailed,
    PermissionDenied,
    ValueTooLarge,
)

GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Another endpoint, or a later time, may give another answer."""

UNREADABLE = "an answer that cannot be read"
"""Why there is no answer where gRPC gives None: there was one, and it is no message of etcd's."""


class NotSent(Exception):
    """The request has certainly not been carried out, or may be carried out twice.

    `refused`: the connection failed. `connected`: there was a connection, so TLS is not at fault.
    """

    def __init__(self, text: str, *, refused: bool = False, connected: bool = True) -> None:
        self.refused, self.connected = refused, connected
        super().__init__(text)


def why(problem: grpc.aio.AioRpcError) -> str:
    """The reason, in one line."""
    if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer within the deadline"
    details = str(problem.details() or problem.code().name)
    return details.splitlines()[0][:200]


def gone(problem: grpc.aio.AioRpcError) -> bool:
    """Whether another endpoint may answer better."""
    # gRPC's own words for a connection that ended under a call; etcd's for a member that waits
    # for a leader, which it may say without a code.
    return problem.code() in GONE or _says(
        problem, "too many requests", "Internal error from Core", "context deadline exceeded"
    )


def not_applied(problem: grpc.aio.AioRpcError) -> bool:
    """Whether etcd turned the request away before it was proposed: it was not carried out."""
    return _says(problem, "etcdserver: no leader", "too many requests", "not capable")


def stale_login(problem: grpc.aio.AioRpcError) -> bool:
    """Whether a new login would help: the token has ended, or users were edited meanwhile."""
    return problem.code() is grpc.StatusCode.UNAUTHENTICATED or _says(
        problem, "revision of auth store is old", "user name is empty", "invalid auth token"
    )


def login_not_needed(problem: grpc.aio.AioRpcError) -> bool:
    """Whether etcd runs without users, so that a password is of no use."""
    return _says(problem, "authentication is not enabled")


def error_of(problem: grpc.aio.AioRpcError, user: str = "") -> DatastoreError:
    """The error of the interface for an error of etcd's or gRPC's."""
    text, code = why(problem), problem.code()
    if code is grpc.StatusCode.OUT_OF_RANGE and _says(problem, "compacted"):
        return Compacted("etcd has compacted the revision that was asked for")
    if _says(problem, "authentication failed"):
        return LoginFailed(f"etcd does not accept user {user!r} with this password")
    if stale_login(problem):
        return LoginFailed(
            f"etcd wants a login ({text}): set etcdUsername and etcdPassword, or a client"
            " certificate whose CN is a user of etcd"
        )
    # A proxy hands etcd's words on without their code.
    if code is grpc.StatusCode.PERMISSION_DENIED or _says(problem, "etcdserver: permission denied"):
        return PermissionDenied(
            f"etcd refused: the role of {f'user {user!r}' if user else 'this client'} does not"
            " allow it"
        )
    if _says(problem, "request is too large", "message larger than max"):
        return ValueTooLarge(f"etcd refused: {text}")
    if _says(problem, "database space exceeded"):
        return DatastoreFull(
            "etcd is full (alarm NOSPACE): compact and defragment it, or raise"
            " --quota-backend-bytes, then `etcdctl alarm disarm`"
        )
    if _says(problem, "requested lease not found"):
        return LeaseEnded("etcd has no such lease any more")
    if _says(problem, "too many operations"):
        return DatastoreError(f"etcd refused: {text}: its --max-txn-ops must be at least 128")
    if gone(problem):
        return DatastoreUnavailable(f"etcd: {text}")
    return DatastoreError(f"etcd refused: {text}")


def _says(problem: grpc.aio.AioRpcError, *texts: str) -> bool:
    details = str(problem.details() or "")
    return any(text in details for text in texts)
