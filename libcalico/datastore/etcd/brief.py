"""A datastore on etcd as far as a short command needs it, by calls that it waits for.

Only what is usual: a member that answers at once and a login by certificate or by none. For all
else `Unanswered` is raised, and `libcalico.datastore.blocking` asks through `EtcdDatastore`.
Requests, entries and errors of objects are the same there and here.
Tested in tests/libcalico/test_etcd_blocking.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import built_in
from libcalico.datastore.etcd import keys, messages
from libcalico.datastore.etcd.blocking_call import BlockingCalls
from libcalico.datastore.etcd.entries import collect, decode, stored
from libcalico.datastore.etcd.ranges import Parts
from libcalico.datastore.etcd.unary import RANGE, TXN, Unanswered
from libcalico.datastore.interface import (
    Change,
    CommitConflict,
    Delete,
    Entry,
    Listing,
    Put,
    Selection,
)
from libcalico.errors import InvalidValue
from libcalico.model.keys import Key

if TYPE_CHECKING:
    import ssl

PAGE = 2000
"""Keys in one page of a listing."""
MOST = 128
"""Operations of one transaction that etcd takes."""


class BriefEtcd:
    """The calls on one member. Each method raises Unanswered besides the interface's errors."""

    def __init__(self, config: DatastoreConfig) -> None:
        """Connect to a member drawn by lot. Raises Unanswered, CertificateProblem."""
        if not config.endpoints or (config.username and config.password):
            raise Unanswered("a login by password, or no endpoint", sent=False)
        # The module `random` is a tenth of a command.
        endpoint = config.endpoints[os.urandom(1)[0] % len(config.endpoints)]
        try:
            member = parsing.address(endpoint, parsing.ETCD_PORT)
            context = _context(config) if member.secure else None
            self._calls = BlockingCalls(member.host, member.port, context)
        except (OSError, ValueError) as problem:
            # ssl.SSLError, and UnicodeError of a name, too.
            raise Unanswered(str(problem), sent=False) from None

    def get_many(self, requested: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision. Raises InvalidValue for one that cannot be read."""
        entries: dict[Key, Entry | None] = dict.fromkeys(requested)
        wanted = [key for key in entries if key != built_in.KEY]
        if len(wanted) > MOST:
            raise Unanswered("more than one request", sent=False)
        if wanted:
            read = [messages.reading(keys.path_of(key).encode()) for key in wanted]
            outcome = self._transaction(messages.transaction((), read), len(wanted))
            for key, found in zip(wanted, outcome.ranges, strict=True):
                for one in found.stored:
                    entries[key] = decode(key, one.value, one.revision)
        if built_in.KEY in entries:
            entries[built_in.KEY] = built_in.entry()
        return entries

    def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        if keys.scattered(selection):
            raise Unanswered("a listing of few keys among many", sent=False)
        parts, revision, more = Parts(*keys.range_of(selection), PAGE), 0, True
        listing = Listing([], 0, [])
        while more:
            first, end = parts.span
            request = messages.range_request(first, end, PAGE, revision)
            page = self._range(request)
            for one in page.stored:
                collect(selection, one.key, one.value, one.revision, listing)
            found = [one.key for one in page.stored]
            more = parts.answer(found, page.total, more=page.more)
            revision = revision or page.revision
        if built_in.is_selected(selection):
            listing.entries.append(built_in.entry())
        return Listing(listing.entries, revision, listing.broken)

    def commit(self, changes: Sequence[Change]) -> int:
        """Apply all or nothing; returns the new revision. Raises CommitConflict.

        Unanswered with `sent`: the changes may have been made, and each of them has a guard.
        """
        compares, operations, guarded = list[bytes](), list[bytes](), list[Key]()
        for change in built_in.permitted(changes):
            path = keys.path_of(change.key).encode()
            if change.guard is None or (isinstance(change, Put) and change.ttl):
                # It must not be sent twice (ETCD-1), or needs a lease.
                raise Unanswered("a change without a guard", sent=False)
            compares.append(messages.comparing(path, change.guard))
            guarded.append(change.key)
            if isinstance(change, Put):
                operations.append(messages.putting(path, stored(change)))
            elif isinstance(change, Delete):
                operations.append(messages.deleting(path))
        if len(guarded) > MOST:
            raise Unanswered("a large commit", sent=False)
        again = [messages.reading(keys.path_of(key).encode()) for key in guarded]
        request = messages.transaction(compares, operations, again)
        outcome = self._transaction(request, 0)
        if outcome.succeeded:
            return outcome.revision
        raise CommitConflict(
            {
                key: _tolerant(key, found.stored[0]) if found.stored else None
                for key, found in zip(guarded, outcome.ranges, strict=True)
            }
        )

    def close(self) -> None:
        """End the connection."""
        self._calls.close()

    def _transaction(self, request: bytes, ranges: int) -> messages.Outcome:
        answer = self._calls.call(TXN, request)
        try:
            outcome = messages.outcome_of(answer)
        except (ValueError, IndexError):
            raise Unanswered("an answer that cannot be read", sent=True) from None
        if ranges and len(outcome.ranges) != ranges:
            raise Unanswered("an answer to something else", sent=True)
        return outcome

    def _range(self, request: bytes) -> messages.Range:
        answer = self._calls.call(RANGE, request)
        try:
            return messages.range_of(answer)
        except (ValueError, IndexError):
            raise Unanswered("an answer that cannot be read", sent=True) from None


def _tolerant(key: Key, found: messages.Stored) -> Entry:
    """The entry of a conflict, also where its value cannot be read."""
    try:
        return decode(key, found.value, found.revision)
    except InvalidValue:
        return Entry(key, None, found.revision, found.value)


def _context(config: DatastoreConfig) -> ssl.SSLContext:
    """Raises CertificateProblem, OSError, Unanswered where gRPC would trust what we do not know."""
    from libcalico.datastore import pem

    material = pem.settle(config)
    if not material.ca:
        raise Unanswered("certificates of the system's authorities", sent=False)
    return pem.context_of(material)
