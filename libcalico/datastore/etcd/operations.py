"""Changes and guards as what etcd takes, and what it refused in the words of objects: pure.

Tested against a real etcd in tests/libcalico/test_etcd_store.py and test_etcd_limits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from libcalico.datastore import built_in
from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.entries import stored
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import ABSENT, Change, Check, Delete, Put, Selection
from libcalico.errors import DatastoreError, ValueTooLarge
from libcalico.model.keys import Key

MAX_OPERATIONS = 128
"""Operations in one transaction, and guards."""
REQUEST_LIMIT = "1.5 MiB"
"""What etcd takes in one request, unless it was started with another --max-request-bytes."""


@dataclass(slots=True)
class Transaction:
    """A commit as etcd takes it. `leased`: puts with the seconds after which they are forgotten."""

    compares: list[pb.Compare] = field(default_factory=list)
    operations: list[pb.RequestOp] = field(default_factory=list)
    guarded: list[Key] = field(default_factory=list)
    leased: list[tuple[pb.RequestOp, int]] = field(default_factory=list)

    def request(self) -> pb.TxnRequest:
        """The request; where a guard does not hold, its answer has the guarded objects."""
        return pb.TxnRequest(
            compare=self.compares,
            success=self.operations,
            failure=[range_op(key, 0) for key in self.guarded],
        )


def transaction_of(changes: Sequence[Change]) -> Transaction:
    """The transaction that makes these changes.

    Raises DatastoreError for changes that cannot be one transaction, InvalidValue.
    """
    transaction = Transaction()
    for change in built_in.permitted(changes):
        if change.guard is not None:
            transaction.compares.append(compare(change.key, change.guard))
            transaction.guarded.append(change.key)
        op = operation(change)
        if op is not None:
            transaction.operations.append(op)
            if isinstance(change, Put) and change.ttl:
                transaction.leased.append((op, change.ttl))
    if max(len(transaction.compares), len(transaction.operations)) > MAX_OPERATIONS:
        raise DatastoreError(
            f"a commit of {len(transaction.operations)} changes and {len(transaction.compares)}"
            f" guards is too large: etcd takes {MAX_OPERATIONS} of each"
        )
    return transaction


def range_op(key: Key, revision: int) -> pb.RequestOp:
    """The operation that reads an object at a revision; 0 is the present one."""
    return pb.RequestOp(
        request_range=pb.RangeRequest(key=keys.path_of(key).encode(), revision=revision)
    )


def compare(key: Key, guard: int) -> pb.Compare:
    """The condition that an object is at this revision; with ABSENT, that there is none."""
    path = keys.path_of(key).encode()
    if guard == ABSENT:
        return pb.Compare(key=path, target=pb.Compare.VERSION, version=0)
    return pb.Compare(key=path, target=pb.Compare.MOD, mod_revision=guard)


def operation(change: Change) -> pb.RequestOp | None:
    """The operation that makes a change; None for a check.

    Raises InvalidValue for a resource under the key of another.
    """
    path = keys.path_of(change.key).encode()
    match change:
        case Put():
            put = pb.PutRequest(key=path, value=stored(change), lease=change.lease)
            return pb.RequestOp(request_put=put)
        case Delete():
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=path))
        case Check():
            return None


def named_keys(what: Iterable[Key | Selection]) -> str:
    """Objects and selections by their names and paths, the first five of them."""
    names = [
        f"every {one.family}" if isinstance(one, Selection) else f"{one} ({keys.path_of(one)})"
        for one in what
    ]
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")


def too_large(operations: Sequence[pb.RequestOp], problem: ValueTooLarge) -> ValueTooLarge:
    """The error that names the largest object, or says that all together are too large."""
    sizes = {op.request_put.key.decode(): len(op.request_put.value) for op in operations}
    path, size = max(sizes.items(), key=lambda item: item[1])
    key = keys.key_of_path(path)
    others = sum(sizes.values()) - size
    return ValueTooLarge(
        f"{key} is too large: {size} bytes"
        + (f", and {others} bytes of others in the same commit" if others else "")
        + f"; etcd takes {REQUEST_LIMIT} in one request, or what its --max-request-bytes says"
        f" ({problem})"
    )
