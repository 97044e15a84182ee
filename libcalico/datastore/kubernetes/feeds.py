"""One collection of one selection, as listings and watches read it.

Tested in tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from dataclasses import dataclass

from libcalico.datastore.interface import Selection
from libcalico.datastore.kubernetes.mapping import Mapping

NOWHERE = 1
"""The position of a collection that was not there when it was listed."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One collection of one selection."""

    selection: Selection
    mapping: Mapping
    path: str
    parameters: Map[str, str]
