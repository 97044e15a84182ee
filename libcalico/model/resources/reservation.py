"""The IPReservation resource (docs/reference/data-model.md#ipreservation): addresses that are never
assigned by themselves.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class IPReservationSpec(Struct, frozen=True):
    """Networks and addresses of either family; a request for one by name still works."""

    reservedCIDRs: list[str] = []


class IPReservation(APIObject, frozen=True, kw_only=True):
    """Addresses that automatic assignment leaves alone."""

    kind: str = always("IPReservation")
    spec: IPReservationSpec = always(IPReservationSpec())
