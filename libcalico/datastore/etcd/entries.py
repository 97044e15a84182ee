"""Stored bytes as entries, also where they cannot be decoded; and the bytes to store.

A value that cannot be decoded is named, not lost; a policy still stands for what it closes
(libcalico/model/salvage.py).

Invariant ETCD-2: one stored value that is torn, hostile or of another program never ends an
agent that follows it. Tested in tests/libcalico/test_etcd_entries.py.
"""

from __future__ import annotations

import msgspec

from libcalico.datastore.etcd import keys
from libcalico.datastore.interface import Entry, Listing, Put, Selection
from libcalico.errors import NO_DOCUMENT, InvalidValue
from libcalico.model import codec
from libcalico.model.base.meta import stamp
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.kinds import check_name
from libcalico.model.salvage import salvage


def decode(key: Key, raw: bytes, revision: int) -> Entry:
    """The entry. Raises InvalidValue, and for no bytes anything else (ETCD-2)."""
    try:
        return Entry(key, codec.decode_value(key, raw), revision, raw)
    except (*NO_DOCUMENT, ValueError) as problem:
        raise codec.not_json(str(key), raw, problem) from None


def entry_of(key: Key, raw: bytes, revision: int) -> tuple[Entry | None, str]:
    """The entry, and why its value could not be decoded: empty for a good one."""
    try:
        return decode(key, raw, revision), ""
    except InvalidValue as problem:
        reason = str(problem)
    try:
        value = salvage(key, raw)
    except RecursionError:
        value = salvage(key, b"")  # nothing of it can be read: it closes what an empty one closes
    return (None if value is None else Entry(key, value, revision, raw, reason)), reason


def collect(selection: Selection, path: bytes, raw: bytes, revision: int, page: Listing) -> None:
    """Add what one etcd key holds to a page of a listing, if it is of the selection."""
    text = path.decode(errors="replace")
    key = keys.key_of_path(text)
    if key is None or not keys.selects(selection, key):
        return
    if selection.raw:
        page.entries.append(Entry(key, None, revision, raw))
        return
    entry, reason = entry_of(key, raw, revision)
    if reason:
        page.broken.append((text, reason))
    if entry is not None:
        page.entries.append(entry)


def stored(put: Put) -> bytes:
    """The bytes that a change writes. Raises InvalidValue for a resource under another's key."""
    key, value = put.key, put.value
    if isinstance(key, ResourceKey):
        check_name(key, value)
        if value.kind != key.kind:
            value = msgspec.structs.replace(value, kind=key.kind)
        value = stamp(value)
    return codec.encode_value(key, value, put.base.raw if put.base else None)
