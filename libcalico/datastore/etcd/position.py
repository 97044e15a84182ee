"""A revision of etcd that knows in which history it was: a store may be restored from a backup.

A restored store counts its revisions on from the backup: once it was written to, an old revision is
one of its own, with another past behind it. What differs is the identity of the cluster (a
restore with a token of its own, as etcd's documentation has it) or the number of elections, which
a restored cluster counts anew. A member that lags may know of fewer elections too; so a
reader that finds a difference asks the cluster (`watch`).
Tested in tests/libcalico/test_etcd_restored.py.
"""

from __future__ import annotations

from libcalico.datastore.etcd.proto import etcd_pb2 as pb


class Position(int):
    """A revision, and the cluster and term of the header that named it; 0 where none did."""

    cluster: int = 0
    term: int = 0

    @classmethod
    def of(cls, revision: int, header: pb.ResponseHeader) -> Position:
        """A revision in the history of a header."""
        position = cls(revision)
        position.cluster, position.term = header.cluster_id, header.raft_term
        return position

    def newer(self, other: Position) -> Position:
        """The later of two positions; of one revision, that of the later term."""
        return max(self, other, key=lambda one: (int(one), one.term))

    @staticmethod
    def header_of(revision: int) -> pb.ResponseHeader:
        """A header with the history of a revision; empty where none is known."""
        if not isinstance(revision, Position):
            return pb.ResponseHeader()
        return pb.ResponseHeader(cluster_id=revision.cluster, raft_term=revision.term)


def replaced(revision: int, header: pb.ResponseHeader) -> str:
    """The text of the error where a header is `foreign`."""
    return (
        f"etcd is at revision {header.revision}, which did not follow on {revision}:"
        " the store was put back to an earlier state, or replaced"
    )


def foreign(revision: int, header: pb.ResponseHeader) -> bool:
    """Whether a header belongs to another history than the revision, or lags behind it."""
    if header.revision < revision:
        return True
    if not isinstance(revision, Position) or not revision.cluster:
        return False
    return header.cluster_id != revision.cluster or header.raft_term < revision.term
