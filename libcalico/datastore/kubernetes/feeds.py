"""One collection of one selection, as listings and watches read it.

Tested in tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from dataclasses import dataclass

from libcalico.datastore.interface import Selection
from libcalico.datastore.kubernetes.mapping import Mapping
from libcalico.kubernetes import protobuf
from libcalico.kubernetes.connections import JSON

NOWHERE = 1
"""The position of a collection that was not there when it was listed."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One collection of one selection."""

    selection: Selection
    mapping: Mapping
    path: str
    parameters: Map[str, str]
    brief: bool = False

    @property
    def accepts(self) -> str:
        """The forms in which a watch may tell of objects."""
        if self.mapping.collection.fields is None:
            return JSON
        return protobuf.METADATA if self.brief else protobuf.ACCEPT

    @property
    def accepts_of_list(self) -> str:
        """The forms of a list."""
        return protobuf.METADATA_LIST if self.accepts == protobuf.METADATA else self.accepts
