"""Leases of etcd: a time to live that several keys share, and that is kept without a write.

Keeping a lease alive is a question to the member that leads: it makes no revision, wakes no watch
and is on no disk. Granting one is a proposal, like a write, without a revision.
Tested against a real etcd in tests/libcalico/test_etcd_leases.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.errors import DatastoreError


async def grant(connection: Connection, ttl: int) -> int:
    """A new lease of `ttl` seconds; one whose answer is lost ends by itself."""
    request = pb.LeaseGrantRequest(TTL=ttl)
    return (await connection.read(lambda link: link.grant, request)).ID


async def keep_alive(connection: Connection, lease: int) -> bool:
    """Begin a lease's time anew; False where etcd has no such lease (any more)."""
    request = pb.LeaseKeepAliveRequest(ID=lease)
    return (await connection.read(lambda link: link.keep_alive, request)).TTL > 0


async def seconds_left(connection: Connection, path: str) -> int:
    """Whole seconds until a key ends with its lease; 0 for a key without lease, or none."""
    answer = await connection.read(lambda link: link.range, pb.RangeRequest(key=path.encode()))
    lease = answer.kvs[0].lease if answer.kvs else 0
    if not lease:
        return 0
    request = pb.LeaseTimeToLiveRequest(ID=lease)
    return max(0, (await connection.read(lambda link: link.time_to_live, request)).TTL)


async def revoke(connection: Connection, leases: Iterable[int]) -> None:
    """End leases; one that cannot be ended now ends by itself."""
    for lease in leases:
        try:
            request = pb.LeaseRevokeRequest(ID=lease)
            await connection.read(lambda link: link.revoke, request)
        except DatastoreError:
            pass
