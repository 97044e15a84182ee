"""The one object that every store has without holding it: the profile that allows everything.

Tested in tests/libcalico/test_etcd_store.py and tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from libcalico.datastore.interface import (
    ABSENT,
    Change,
    Check,
    CommitConflict,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import DatastoreError
from libcalico.model import codec
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.resources.profile import DEFAULT_ALLOW, Profile, default_allow

KEY = ResourceKey.to(Profile, DEFAULT_ALLOW)


def entry() -> Entry[Profile]:
    """The profile as an entry."""
    value = default_allow()
    return Entry(KEY, value, 1, codec.encode_value(KEY, value))


def is_selected(selection: Selection) -> bool:
    """Whether a selection holds the profile."""
    return selection.family == "Profile" and DEFAULT_ALLOW.startswith(selection.name_prefix)


def permitted(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes of a commit, one after the other.

    Raises DatastoreError for a key that comes twice and for a change of the profile, CommitConflict
    for creating it.
    """
    seen: set[Key] = set()
    for change in changes:
        if change.key in seen:
            raise DatastoreError(f"{change.key} appears twice in one commit")
        seen.add(change.key)
        _refuse(change)
        yield change


def _refuse(change: Change) -> None:
    if change.key != KEY or isinstance(change, Check):
        return
    if isinstance(change, Put) and change.guard == ABSENT:
        raise CommitConflict({KEY: entry()})
    raise DatastoreError(f"{KEY} is built in: it cannot be changed or deleted")
