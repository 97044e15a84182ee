"""Values of the status keys that felix writes: its own life sign and the endpoints' states.

Source: data model 1.10. The bytes of a real Calico are held in tests/libcalico/test_etcd_keys.py.
"""

from __future__ import annotations

from libcalico.model.base import Struct

STATES = ("up", "down", "error")


class FelixStatus(Struct, frozen=True, omit_defaults=False):
    """felix's life sign: when it was written (RFC 3339), uptime in seconds, first of this life.

    Go writes a whole number without a fraction: give such an uptime as `int`.
    """

    time: str = ""
    uptime: int | float = 0
    first_update: bool = False


class EndpointStatus(Struct, frozen=True, omit_defaults=False):
    """The state of an endpoint: one of `STATES`."""

    status: str = ""
