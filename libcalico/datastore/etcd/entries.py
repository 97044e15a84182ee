"""Stored bytes as entries, also where they cannot be decoded.

A value that cannot be decoded is named, not lost; a policy still stands for what it closes
(libcalico/model/salvage.py).

Invariant ETCD-2: one stored value that is torn, hostile or of another program never ends an
agent that follows it. Tested in tests/libcalico/test_etcd_entries.py.
"""

from __future__ import annotations

from libcalico.datastore.interface import Entry
from libcalico.errors import NO_DOCUMENT, InvalidValue
from libcalico.model import codec
from libcalico.model.keys import Key
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
