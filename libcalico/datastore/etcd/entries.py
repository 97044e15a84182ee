"""Stored bytes as entries, also where they cannot be decoded.

What nobody understands is named, not lost; and a policy still stands for what it closes
(libcalico/model/salvage.py).
"""

from __future__ import annotations

from libcalico.datastore.interface import Entry
from libcalico.errors import InvalidValue
from libcalico.model import codec
from libcalico.model.keys import Key
from libcalico.model.salvage import salvage


def entry_of(key: Key, raw: bytes, revision: int) -> tuple[Entry | None, str]:
    """The entry, and why its value could not be decoded: empty for a good one."""
    try:
        return Entry(key, codec.decode_value(key, raw), revision, raw), ""
    except InvalidValue as problem:
        reason = str(problem)
    value = salvage(key, raw)
    return (None if value is None else Entry(key, value, revision, raw, reason)), reason
